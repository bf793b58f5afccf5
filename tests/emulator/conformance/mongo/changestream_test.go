package mongo_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

const quick = 20 * time.Millisecond

func watch(t *testing.T, c *driver.Collection, o *options.ChangeStreamOptionsBuilder, stages ...bson.D) *driver.ChangeStream {
	t.Helper()
	cs, err := c.Watch(t.Context(), append(driver.Pipeline{}, stages...), o.SetMaxAwaitTime(quick))
	require.NoError(t, err)
	closing(t, cs)
	return cs
}

func insert(t *testing.T, c *driver.Collection, ids ...any) {
	t.Helper()
	for _, id := range ids {
		_, err := c.InsertOne(t.Context(), d("_id", id))
		require.NoError(t, err)
	}
}

func code(t *testing.T, err error) int32 {
	t.Helper()
	var ce driver.CommandError
	require.ErrorAs(t, err, &ce)
	return ce.Code
}

func TestEventsSortByTokenAndResumeExactly(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	cs := watch(t, c, options.ChangeStream())
	_, err := c.InsertMany(ctx, []any{d("_id", "z"), d("_id", "a"), d("_id", int64(1)<<40), d("_id", 2.5)})
	require.NoError(t, err)
	_, err = c.ReplaceOne(ctx, d("_id", "a"), d("x", 1))
	require.NoError(t, err)
	_, err = c.DeleteOne(ctx, d("_id", "z"))
	require.NoError(t, err)

	var tokens []bson.Raw
	var events []bson.M
	for range 6 {
		events = append(events, next(t, cs))
		tokens = append(tokens, cs.ResumeToken())
	}
	if f.since(t, 8, 0) {
		require.Equal(t, events[0]["clusterTime"], events[3]["clusterTime"], "one insertMany shares its cluster time")
	}
	require.Equal(t, []any{"insert", "insert", "insert", "insert", "replace", "delete"}, []any{
		events[0]["operationType"], events[1]["operationType"], events[2]["operationType"], events[3]["operationType"], events[4]["operationType"], events[5]["operationType"],
	})
	require.Equal(t, d("_id", "a", "x", int32(1)), events[4]["fullDocument"])
	require.NotContains(t, events[5], "fullDocument")
	for i := 1; i < len(events); i++ {
		require.Less(t, data(events[i-1]), data(events[i]))
	}
	for i, token := range tokens[:5] {
		again := watch(t, c, options.ChangeStream().SetResumeAfter(token))
		require.Equal(t, data(events[i+1]), data(next(t, again)), "resumed after event %d", i)
	}
	start := events[4]["clusterTime"].(bson.Timestamp)
	require.Equal(t, data(events[4]), data(next(t, watch(t, c, options.ChangeStream().SetStartAtOperationTime(&start)))), "inclusive")
}

func TestResumeRefusals(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	cs := watch(t, c, options.ChangeStream())
	insert(t, c, 1)
	next(t, cs)
	token := cs.ResumeToken()
	other := f.client.Database("db").Collection("other")
	if foreign, err := other.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetResumeAfter(token)); f.srv != nil {
		require.EqualValues(t, 280, code(t, err), "the token belongs to another collection")
	} else { // a server checks only when there is an event; see Options.AcceptLostTokens
		require.NoError(t, err)
		insert(t, other, 1)
		require.False(t, foreign.Next(ctx))
		require.EqualValues(t, 280, code(t, foreign.Err()))
	}
	f.requires(t, 7, 0) // whose tokens are of version 2
	forged := strings.Replace(token.Lookup("_data").StringValue(), "5F6964002B02", "5F6964002900", 1)
	require.NotEqual(t, token.Lookup("_data").StringValue(), forged)
	_, err := c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetResumeAfter(d("_data", forged)))
	require.EqualValues(t, 280, code(t, err), "no event has just this token")
	_, err = c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetResumeAfter(d("_data", "xyz")))
	require.EqualValues(t, 9, code(t, err))
	_, err = c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetResumeAfter(token).SetStartAfter(token))
	require.EqualValues(t, 50865, code(t, err))
	_, err = c.Watch(ctx, driver.Pipeline{d("$project", d("_id", 0))})
	require.NoError(t, err, "seen only when an event comes")
	cs = watch(t, c, options.ChangeStream(), d("$unset", "_id"))
	insert(t, c, 2)
	require.False(t, cs.Next(ctx))
	require.EqualValues(t, 280, code(t, cs.Err()))
}

func TestInvalidateAndStartAfter(t *testing.T) {
	for name, end := range map[string]func(f *fixture) error{
		"drop": func(f *fixture) error { return f.coll().Drop(t.Context()) },
		"rename": func(f *fixture) error {
			return f.client.Database("admin").RunCommand(t.Context(), d("renameCollection", "db.c", "to", "db.moved")).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, mongo.Options{})
			ctx, c := t.Context(), f.coll()
			cs := watch(t, c, options.ChangeStream())
			insert(t, c, 1)
			require.NoError(t, end(f))
			require.Equal(t, "insert", next(t, cs)["operationType"])
			last := next(t, cs)
			require.Equal(t, name, last["operationType"])
			dropToken := cs.ResumeToken()
			gone := next(t, cs)
			require.Equal(t, "invalidate", gone["operationType"])
			require.Less(t, data(last), data(gone))
			token := cs.ResumeToken()
			require.False(t, cs.Next(ctx))
			require.NoError(t, cs.Err())
			require.Zero(t, cs.ID())

			insert(t, c, 2)
			_, err := c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
			require.EqualValues(t, 260, code(t, err))
			require.Equal(t, d("_id", int32(2)), next(t, watch(t, c, options.ChangeStream().SetStartAfter(token)))["documentKey"])
			require.Equal(t, "invalidate", next(t, watch(t, c, options.ChangeStream().SetResumeAfter(dropToken)))["operationType"])
		})
	}
}

func TestLostHistoryIsReported(t *testing.T) {
	f := serve(t, mongo.Options{OplogEntries: 20})
	ctx, c := t.Context(), f.coll()
	idle := watch(t, f.client.Database("db").Collection("idle"), options.ChangeStream())
	cs := watch(t, c, options.ChangeStream().SetBatchSize(1))
	insert(t, c, 1)
	next(t, cs)
	token := cs.ResumeToken()
	for i := range 40 {
		insert(t, c, 100+i)
	}
	_, err := c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	require.EqualValues(t, 286, code(t, err))
	var ce driver.CommandError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, []string{"NonResumableChangeStreamError"}, ce.Labels)
	for cs.Next(ctx) { // the open cursor has fallen behind, too
	}
	require.EqualValues(t, 286, code(t, cs.Err()))
	require.False(t, idle.Next(ctx))
	require.EqualValues(t, 286, code(t, idle.Err()))
}

func TestForgottenChangesAreLostHistory(t *testing.T) {
	f := serve(t, mongo.Options{})
	if f.srv == nil {
		t.Skip("a real server loses history when its oplog is full")
	}
	ctx, c := t.Context(), f.coll()
	cs := watch(t, c, options.ChangeStream())
	insert(t, c, 1)
	next(t, cs)
	token := cs.ResumeToken()
	insert(t, c, 2)
	f.srv.ForgetChanges("db")
	insert(t, c, 3)
	_, err := c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	require.EqualValues(t, 286, code(t, err))
	fresh := watch(t, c, options.ChangeStream())
	insert(t, c, 4)
	require.Equal(t, d("_id", int32(4)), next(t, fresh)["documentKey"], "what comes later is read")
}

func TestIdleStreamsTokenAdvances(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 7, 0) // whose tokens are of version 2
	ctx, c := t.Context(), f.coll()
	cs := watch(t, c, options.ChangeStream())
	filtered := watch(t, c, options.ChangeStream(), d("$match", d("operationType", "nothing")))
	token := func(cs *driver.ChangeStream) string {
		require.False(t, cs.TryNext(ctx))
		require.NoError(t, cs.Err())
		return cs.ResumeToken().Lookup("_data").StringValue()
	}
	before := token(cs)
	insert(t, f.client.Database("db").Collection("other"), 1)
	after := token(cs)
	require.Less(t, before, after)
	require.Len(t, after, 32, "a high-water mark")
	seen := token(filtered)
	insert(t, c, 1)
	require.Less(t, seen, token(filtered), "past an event that the pipeline removed")
	next(t, cs)
	resumed := watch(t, c, options.ChangeStream().SetResumeAfter(d("_data", after)))
	require.Equal(t, d("_id", int32(1)), next(t, resumed)["documentKey"])
}

func TestUpdateDescription(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0) // 4.4 sorts the fields, and names paths rather than documents
	ctx, c := t.Context(), f.coll()
	_, err := c.InsertOne(ctx, d("_id", 1, "a", d("b", 1, "c", 1), "list", bson.A{1, 2, 3}, "gone", true, "n", 1))
	require.NoError(t, err)
	cs := watch(t, c, options.ChangeStream())
	for _, step := range []struct {
		update  any
		updated bson.D
		removed bson.A
		trunc   bson.A
	}{
		{d("$set", d("a.b", 2, "new.deep", "x"), "$unset", d("gone", "")), d("new", d("deep", "x"), "a.b", int32(2)), bson.A{"gone"}, bson.A{}},
		{d("$push", d("list", 4)), d("list.3", int32(4)), bson.A{}, bson.A{}},
		{bson.A{d("$set", d("list", d("$slice", bson.A{"$list", 2}), "n", d("$add", bson.A{"$n", 1})))}, d("n", int32(2)), bson.A{}, bson.A{d("field", "list", "newSize", int32(2))}},
		{d("$inc", d("n", 5), "$rename", d("a.c", "moved")), d("n", int32(7), "moved", int32(1)), bson.A{"a.c"}, bson.A{}},
	} {
		_, err := c.UpdateOne(ctx, d("_id", 1), step.update)
		require.NoError(t, err)
		require.Equal(t, d("updatedFields", step.updated, "removedFields", step.removed, "truncatedArrays", step.trunc), next(t, cs)["updateDescription"])
	}
	res, err := c.UpdateOne(ctx, d("_id", 1), d("$set", d("n", 7)))
	require.NoError(t, err)
	require.EqualValues(t, 1, res.MatchedCount)
	require.Zero(t, res.ModifiedCount)
	require.False(t, cs.TryNext(ctx), "a write that changes nothing is no event")
}

func TestFullDocumentsAndPreImages(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 6, 0)
	ctx, c := t.Context(), f.coll()
	insert(t, c, 1)
	available := watch(t, c, options.ChangeStream().SetFullDocument(options.WhenAvailable).SetFullDocumentBeforeChange(options.WhenAvailable))
	required := watch(t, c, options.ChangeStream().SetFullDocument(options.Required))
	lookup := watch(t, c, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	_, err := c.UpdateOne(ctx, d("_id", 1), d("$set", d("v", 1)))
	require.NoError(t, err)
	e := next(t, available)
	require.Contains(t, e, "fullDocument")
	require.Nil(t, e["fullDocument"])
	require.Contains(t, e, "fullDocumentBeforeChange")
	require.False(t, required.Next(ctx))
	require.EqualValues(t, 47, code(t, required.Err()))

	f.command(t, "db", d("collMod", "c", "changeStreamPreAndPostImages", d("enabled", true)))
	_, err = c.UpdateOne(ctx, d("_id", 1), d("$set", d("v", 2)))
	require.NoError(t, err)
	_, err = c.DeleteOne(ctx, d("_id", 1))
	require.NoError(t, err)
	e = next(t, available)
	require.Equal(t, d("_id", int32(1), "v", int32(2)), e["fullDocument"])
	require.Equal(t, d("_id", int32(1), "v", int32(1)), e["fullDocumentBeforeChange"])
	e = next(t, available)
	require.Equal(t, d("_id", int32(1), "v", int32(2)), e["fullDocumentBeforeChange"])
	require.NotContains(t, e, "fullDocument")
	e = next(t, lookup)
	require.Contains(t, e, "fullDocument")
	require.Nil(t, e["fullDocument"], "the document is gone by now")
}

// Whatever happens to cursors and connections, resuming loses nothing and doubles nothing. The
// driver resumes automatically except in one case: if the monitor sees the dropped connection
// first, the pool is cleared during the resumption, and a reader has to reopen from the token.
func TestStreamSurvivesFaults(t *testing.T) {
	for name, fault := range map[string]func(s *mongo.Server){
		"cursors killed":      func(s *mongo.Server) { s.KillCursors() },
		"connections dropped": func(s *mongo.Server) { s.DropConnections() },
		"stepped down":        func(s *mongo.Server) { s.StepDown(10 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, mongo.Options{})
			c := f.coll()
			cs := watch(t, c, options.ChangeStream().SetBatchSize(2))
			read := func() any {
				for !cs.Next(t.Context()) {
					require.Equal(t, "connections dropped", name, "%v", cs.Err())
					cs = watch(t, c, options.ChangeStream().SetBatchSize(2).SetResumeAfter(cs.ResumeToken()))
				}
				var event bson.M
				require.NoError(t, cs.Decode(&event))
				return event["documentKey"]
			}
			id := int32(0)
			for range 3 {
				insert(t, c, id, id+1, id+2)
				require.Equal(t, d("_id", id), read())
				fault(f.embedded(t))
				require.Equal(t, d("_id", id+1), read())
				require.Equal(t, d("_id", id+2), read())
				id += 3
			}
		})
	}
}

func TestDatabaseAndClusterStreams(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx := t.Context()
	db, err := f.client.Database("db").Watch(ctx, driver.Pipeline{})
	require.NoError(t, err)
	closing(t, db)
	all, err := f.client.Watch(ctx, driver.Pipeline{})
	require.NoError(t, err)
	closing(t, all)
	insert(t, f.client.Database("else").Collection("x"), 1)
	insert(t, f.coll(), 2)
	require.Equal(t, d("db", "db", "coll", "c"), next(t, db)["ns"])
	require.Equal(t, d("db", "else", "coll", "x"), next(t, all)["ns"])
	require.Equal(t, d("db", "db", "coll", "c"), next(t, all)["ns"])
	require.NoError(t, f.client.Database("db").Drop(ctx))
	require.Equal(t, "drop", next(t, db)["operationType"])
	require.Equal(t, "dropDatabase", next(t, db)["operationType"])
	require.Equal(t, "invalidate", next(t, db)["operationType"])
}

// A waiting getMore must not hold anything: others write, and the client may leave.
func TestWaitingStreamHoldsNothing(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	cs, err := c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(5*time.Second))
	require.NoError(t, err)
	waiting, leave := context.WithCancel(ctx)
	var reading errgroup.Group
	reading.Go(func() error { cs.Next(waiting); return cs.Err() })
	insert(t, f.client.Database("db").Collection("other"), 1, 2, 3)
	leave()
	require.ErrorIs(t, reading.Wait(), context.Canceled)
	require.NoError(t, cs.Close(ctx))
}

// A server refuses an empty name by every command. The driver makes the watch of a collection
// without a name one of its whole database, so that only the services can refuse that.
func TestAnEmptyNameIsAnInvalidNamespace(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	require.EqualValues(t, 73, code(t, c.Database().RunCommand(ctx, bson.D{{Key: "find", Value: ""}}).Err()))
	_, err := c.Database().Collection("system.views").Watch(ctx, driver.Pipeline{})
	require.EqualValues(t, 73, code(t, err), err)
	require.EqualValues(t, 73, code(t, c.Database().Client().Database("a.b").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()))
	open := bson.D{{Key: "aggregate", Value: ""}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{}}}}}, {Key: "cursor", Value: bson.D{}}}
	require.EqualValues(t, 73, code(t, c.Database().RunCommand(ctx, open).Err()))
}

// MongoDB 6.0 writes resume tokens of version 1, and of version 2 to a stream that asks for large
// events in parts; earlier versions refuse the latter. Seen on 6.0.27 and 5.0.4.
func TestTheVersionOfATokenFollowsFromTheStage(t *testing.T) {
	f := like(t, mongo.Versions["6.0"])
	form := func(stages ...bson.D) string {
		cs, err := f.coll().Watch(t.Context(), append(driver.Pipeline{}, stages...))
		require.NoError(t, err)
		closing(t, cs)
		_, err = f.coll().InsertOne(t.Context(), bson.D{})
		require.NoError(t, err)
		return next(t, cs)["_id"].(bson.D)[0].Value.(string)[18:22]
	}
	require.Equal(t, "2B02", form())
	require.Equal(t, "2B04", form(d("$changeStreamSplitLargeEvent", bson.D{})))
}

func TestATokenOfVersion2IsRefusedBefore6(t *testing.T) {
	f := like(t, mongo.Versions["5.0"])
	for _, token := range []string{
		"82612E8513000000012B042C0100296E5A1004A5093ABB38FE4B9EA67F01BB1A96D812463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B657900463C5F6964003C5F5F5F7800000004",
		"826B00EBB8000000022B0429296E1404",
	} {
		_, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(d("_data", token)))
		require.EqualValues(t, 50795, code(t, err))
	}
}
