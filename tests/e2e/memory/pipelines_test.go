package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// A mirror that is made of descriptions has every value of its source after any updates by
// pipelines. It has their order as well if the change carries the document, or no field was moved.
func TestAMirrorOfPipelineUpdatesHasEveryValue(t *testing.T) {
	database := emptyDatabase(t, mongoClient(t))
	version, err := mongodb.ServerVersion(t.Context(), database.Client())
	require.NoError(t, err)
	if version.Major < 5 {
		t.Skip("before MongoDB 5.0 this is otherwise")
	}
	source := database.Collection("source")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	cs, err := source.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	require.NoError(t, err)
	t.Cleanup(func() { _ = cs.Close(context.WithoutCancel(t.Context())) })
	_, err = source.InsertOne(t.Context(), append(d("_id", 1, "long", strings.Repeat("x", 300)), someDocument(random, 2)...))
	require.NoError(t, err)

	var described, carried memory.Store
	require.True(t, cs.Next(t.Context()), cs.Err())
	put(t, &carried, cs.Current)
	put(t, &described, cs.Current)
	updates, moves := 0, 0
	for range 400 {
		pipeline, keeps := somePipeline(random)
		result, err := source.UpdateOne(t.Context(), d(), pipeline)
		require.NoError(t, err, "%v", pipeline)
		if result.ModifiedCount == 0 {
			continue
		}
		updates++
		require.True(t, cs.Next(t.Context()), cs.Err())
		put(t, &carried, cs.Current)
		put(t, &described, without(t, cs.Current, "fullDocument"))
		var document bson.D
		require.NoError(t, source.FindOne(t.Context(), d()).Decode(&document))
		same, _ := carried.Get("mirror", int32(1))
		require.Equal(t, document, same, "%v", pipeline)
		copied, _ := described.Get("mirror", int32(1))
		require.Empty(t, memory.Diff(document, copied), "%v", pipeline)
		if !keeps {
			moves++
			put(t, &described, cs.Current) // from here on it is equal to its source again
		} else {
			require.Equal(t, document, copied, "no field was moved: %v", pipeline)
		}
	}
	require.Greater(t, updates-moves, 100)
	require.Greater(t, moves, 30)
}

// put applies a change as a mirror does.
func put(t *testing.T, copies *memory.Store, change bson.Raw) {
	t.Helper()
	writes, err := projection.Mirror{}.Project(projection.Event{Change: envelope.Change{
		Operation: envelope.Operation(change.Lookup("operationType").StringValue()), Body: change,
	}})
	require.NoError(t, err)
	for _, w := range writes {
		if u, ok := w.(projection.UpdateOne); ok && u.InOrder { // as the applier does: one after the other
			for _, op := range u.Ops {
				require.NoError(t, copies.Apply(projection.Update(u.Collection, u.ID, op)))
			}
			continue
		}
		require.NoError(t, copies.Apply(w))
	}
}

// without returns an update's event without one of its fields; other events are unchanged.
func without(t *testing.T, change bson.Raw, field string) bson.Raw {
	t.Helper()
	var fields bson.D
	require.NoError(t, bson.Unmarshal(change, &fields))
	if change.Lookup("operationType").StringValue() != "update" {
		return change
	}
	raw, err := bson.Marshal(slices.DeleteFunc(fields, func(e bson.E) bool { return e.Key == field }))
	require.NoError(t, err)
	return raw
}

func someName(r *rand.Rand) string { return string(rune('a' + r.IntN(7))) }

func someDocument(r *rand.Rand, levels int) bson.D {
	out := bson.D{}
	for _, i := range r.Perm(7)[:1+r.IntN(5)] {
		out = append(out, bson.E{Key: string(rune('a' + i)), Value: someValue(r, levels)})
	}
	return out
}

func someValue(r *rand.Rand, levels int) any {
	switch kind := r.IntN(6); {
	case kind == 0 && levels > 0:
		return someDocument(r, levels-1)
	case kind == 1 && levels > 0:
		list := bson.A{}
		for range r.IntN(5) {
			list = append(list, someValue(r, levels-1))
		}
		return list
	case kind == 2:
		return strings.Repeat("s", r.IntN(30))
	default:
		return int32(r.IntN(4))
	}
}

// somePipeline returns an update by a pipeline; keeps reports whether all fields keep their places.
func somePipeline(r *rand.Rand) (pipeline bson.A, keeps bool) {
	name := someName(r)
	switch r.IntN(8) {
	case 0: // all in a new order, some gone, some new
		fields := d("_id", "$_id", "long", "$long")
		for _, i := range r.Perm(7) {
			fields = append(fields, bson.E{Key: string(rune('a' + i)), Value: "$" + string(rune('a'+i))})
		}
		return bson.A{d("$replaceWith", fields)}, false
	case 1:
		return bson.A{d("$set", d(name, d("$literal", someDocument(r, 2))))}, false // within it
	case 2:
		return bson.A{d("$unset", bson.A{name, "in" + name + "." + someName(r)})}, true
	case 3:
		list := d("$cond", bson.A{d("$isArray", "$"+name), d("$slice", bson.A{"$" + name, 1 + r.IntN(2)}), "$" + name})
		return bson.A{d("$set", d(name, list))}, true
	case 4:
		list := d("$cond", bson.A{d("$isArray", "$"+name), d("$concatArrays", bson.A{"$" + name, bson.A{someValue(r, 0)}}), "$" + name})
		return bson.A{d("$set", d(name, list))}, true
	case 5:
		return bson.A{d("$set", d(name, fmt.Sprint("v", r.IntN(9)), "new"+someName(r), someValue(r, 0)))}, true
	default:
		return bson.A{d("$set", d(name, someValue(r, 0)))}, true
	}
}

func d(pairs ...any) bson.D {
	out := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return out
}
