package mongo_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func TestCollModChangesAView(t *testing.T) {
	f := serve(t, mongo.Options{})
	db := f.client.Database("db")
	v := db.Collection("v")
	insert(t, db.Collection("a"), 1)
	insert(t, db.Collection("b"), 2)
	insert(t, db.Collection("b"), 3)
	require.NoError(t, db.CreateView(t.Context(), "v", "a", bson.A{}))
	definition := func() bson.Raw {
		specs, err := db.ListCollectionSpecifications(t.Context(), d("name", "v"))
		require.NoError(t, err)
		require.Len(t, specs, 1)
		require.Equal(t, "view", specs[0].Type)
		return specs[0].Options
	}
	for _, step := range []struct {
		change, options bson.D
		ids             []any
	}{
		{d("viewOn", "b", "pipeline", bson.A{d("$match", d("_id", 2))}), d("viewOn", "b", "pipeline", bson.A{d("$match", d("_id", int32(2)))}), []any{int32(2)}},
		{d(), d("viewOn", "b", "pipeline", bson.A{d("$match", d("_id", int32(2)))}), []any{int32(2)}},
		{d("pipeline", bson.A{}), d("viewOn", "b", "pipeline", bson.A{}), []any{int32(2), int32(3)}},
		{d("viewOn", "none"), d("viewOn", "none", "pipeline", bson.A{}), nil},
		{d("viewOn", "a"), d("viewOn", "a", "pipeline", bson.A{}), []any{int32(1)}},
	} {
		f.command(t, "db", append(d("collMod", "v"), step.change...))
		var ids []any
		for _, doc := range all(t, v, d()) {
			ids = append(ids, doc[0].Value)
		}
		require.Equal(t, step.ids, ids, step.change)
		want, err := bson.Marshal(step.options)
		require.NoError(t, err)
		require.Equal(t, bson.Raw(want), definition())
	}
}

func TestCollModRefusesWhatAViewCannotBe(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 6, 0) // whose codes these are
	db := f.client.Database("db")
	insert(t, db.Collection("a"), 1)
	require.NoError(t, db.CreateView(t.Context(), "v", "a", bson.A{}))
	require.NoError(t, db.CreateView(t.Context(), "w", "v", bson.A{}))
	for _, test := range []struct {
		code   int
		change bson.D
	}{
		{72, d("collMod", "a", "viewOn", "v", "pipeline", bson.A{})},
		{72, d("collMod", "a", "viewOn", "v")},
		{72, d("collMod", "a", "pipeline", bson.A{})},
		{26, d("collMod", "none", "viewOn", "a", "pipeline", bson.A{})},
		{72, d("collMod", "v", "validator", d("x", 1))},
		{72, d("collMod", "v", "viewOn", "a", "pipeline", bson.A{}, "validationLevel", "off")},
		{2, d("collMod", "v", "viewOn", "")},
		{14, d("collMod", "v", "viewOn", 1)},
		{14, d("collMod", "v", "pipeline", 1)},
		{14, d("collMod", "v", "pipeline", bson.A{1})},
		{40324, d("collMod", "v", "pipeline", bson.A{d("$nonsense", 1)})},
		{167, d("collMod", "v", "pipeline", bson.A{d("$out", "x")})},
		{167, d("collMod", "v", "pipeline", bson.A{d("$merge", d("into", "x"))})},
		{167, d("collMod", "v", "pipeline", bson.A{d("$changeStream", d())})},
		{5, d("collMod", "v", "viewOn", "v")},
		{5, d("collMod", "v", "viewOn", "w")},
	} {
		refused(t, test.code, db.RunCommand(t.Context(), test.change).Err())
	}
	require.Len(t, all(t, db.Collection("w"), d()), 1)
}

// A cursor stays with the collection that the view stood on when it was opened, so a reader sees
// one of the two and never both.
func TestACursorOfAViewOutlivesItsChange(t *testing.T) {
	f := serve(t, mongo.Options{})
	db := f.client.Database("db")
	const each = 20
	for n := range each {
		insert(t, db.Collection("a"), n)
		insert(t, db.Collection("b"), 100+n)
	}
	require.NoError(t, db.CreateView(t.Context(), "v", "a", bson.A{}))
	ended := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		defer close(ended)
		for n := range 40 {
			err := db.RunCommand(t.Context(), d("collMod", "v", "viewOn", []string{"b", "a"}[n%2], "pipeline", bson.A{})).Err()
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		default:
		}
		docs := all(t, db.Collection("v"), d(), options.Find().SetBatchSize(3))
		require.Len(t, docs, each)
		for _, doc := range docs {
			require.Equal(t, docs[0][0].Value.(int32)/100, doc[0].Value.(int32)/100)
		}
	}
	changing.Wait()
}
