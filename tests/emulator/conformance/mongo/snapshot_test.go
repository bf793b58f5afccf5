package mongo_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// restarted returns a new server that starts with what f saved.
func restarted(t *testing.T, f *fixture, opts mongo.Options) *fixture {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, f.embedded(t).Save(&file))
	next := serve(t, opts, func(*options.ClientOptions) {})
	require.NoError(t, next.srv.Restore(&file))
	return next
}

// After a restart from a snapshot every token resumes exactly where it did before,
// and the events are the same, byte for byte.
func TestTokensSurviveARestart(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.embedded(t)
	f.command(t, "db", d("create", "c", "changeStreamPreAndPostImages", d("enabled", true)))
	_, err := f.coll().Indexes().CreateOne(t.Context(), uniqueK())
	require.NoError(t, err)
	watch := func(f *fixture, after bson.Raw) *driver.ChangeStream {
		o := options.ChangeStream().SetShowExpandedEvents(true).SetFullDocument(options.WhenAvailable).SetFullDocumentBeforeChange(options.WhenAvailable)
		if after != nil {
			o.SetStartAfter(after)
		}
		cs, err := f.client.Database("db").Watch(t.Context(), driver.Pipeline{}, o)
		require.NoError(t, err)
		closing(t, cs)
		return cs
	}
	cs := watch(f, nil)
	tokens := []bson.Raw{cs.ResumeToken()}
	_, err = f.coll().InsertMany(t.Context(), []any{d("_id", 1, "k", 1, "list", bson.A{1, 2, 3}), d("_id", "two", "k", 2), d("_id", int64(3), "k", 3)})
	require.NoError(t, err)
	_, err = f.coll().UpdateOne(t.Context(), d("_id", 1), bson.A{d("$set", d("list", bson.A{1, 2}, "n", 5)), d("$unset", "k")})
	require.NoError(t, err)
	_, err = f.coll().ReplaceOne(t.Context(), d("_id", "two"), d("k", 9))
	require.NoError(t, err)
	_, err = f.coll().DeleteOne(t.Context(), d("_id", int64(3)))
	require.NoError(t, err)
	_, err = f.client.Database("db").Collection("gone").InsertOne(t.Context(), d("_id", 1))
	require.NoError(t, err)
	require.NoError(t, f.client.Database("db").Collection("gone").Drop(t.Context()))
	f.command(t, "admin", d("renameCollection", "db.c", "to", "db.renamed"))
	var events []bson.Raw
	for range 10 {
		require.True(t, cs.Next(t.Context()), "%v", cs.Err())
		events = append(events, bytes.Clone(cs.Current))
		tokens = append(tokens, cs.ResumeToken())
	}

	g := restarted(t, f, mongo.Options{})
	for i, token := range tokens {
		again := watch(g, token)
		for _, want := range events[i:] {
			require.True(t, again.Next(t.Context()), "after token %d: %v", i, again.Err())
			require.Equal(t, want.String(), again.Current.String())
		}
		require.NoError(t, again.Close(t.Context()))
	}
	renamed := g.client.Database("db").Collection("renamed")
	require.Equal(t, all(t, f.client.Database("db").Collection("renamed"), d(), options.Find()), all(t, renamed, d(), options.Find()))
	_, err = renamed.InsertOne(t.Context(), d("_id", 77, "k", 9))
	require.True(t, driver.IsDuplicateKeyError(err), "%v", err)
	cs = watch(g, tokens[len(tokens)-1])
	_, err = renamed.InsertOne(t.Context(), d("_id", 78, "k", 10))
	require.NoError(t, err)
	require.Equal(t, d("_id", int32(78)), next(t, cs)["documentKey"])
	require.Greater(t, cs.ResumeToken().Lookup("_data").StringValue(), tokens[len(tokens)-1].Lookup("_data").StringValue())
}

// What the oplog had forgotten stays forgotten.
func TestHistoryLostSurvivesARestart(t *testing.T) {
	f := serve(t, mongo.Options{OplogEntries: 5})
	cs, err := f.coll().Watch(t.Context(), driver.Pipeline{})
	require.NoError(t, err)
	closing(t, cs)
	token := cs.ResumeToken()
	for i := range 20 {
		_, err := f.coll().InsertOne(t.Context(), d("_id", i))
		require.NoError(t, err)
	}
	g := restarted(t, f, mongo.Options{OplogEntries: 5})
	_, err = g.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	require.Equal(t, int32(286), commandError(t, err).Code)
}

// A file that was cut off anywhere, or is something else, is refused, and the
// server is as it was.
func TestCutSnapshotIsRefused(t *testing.T) {
	f := serve(t, mongo.Options{})
	_, err := f.coll().InsertMany(t.Context(), []any{d("_id", 1), d("_id", 2)})
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, f.embedded(t).Save(&file))
	whole := file.Bytes()
	g := mongo.New(mongo.Options{})
	for n := range len(whole) {
		require.ErrorIs(t, g.Restore(bytes.NewReader(whole[:n])), mongo.ErrSnapshot, "%d of %d bytes", n, len(whole))
	}
	require.ErrorIs(t, g.Restore(bytes.NewReader([]byte("\xff\xff\xff\xffnonsense"))), mongo.ErrSnapshot)
	require.NoError(t, g.Restore(bytes.NewReader(whole)))
}
