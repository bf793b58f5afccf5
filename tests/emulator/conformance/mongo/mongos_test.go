package mongo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// sharded returns a mongos by which db.c is sharded by its field owner.
func sharded(t *testing.T, behind time.Duration) *fixture {
	t.Helper()
	return serve(t, mongo.Options{Mongos: &mongo.Mongos{ShardKeys: map[string]string{"db.c": "owner"}, Behind: behind}})
}

func TestAMongosIdentifiesItself(t *testing.T) {
	f := sharded(t, 0)
	hello := f.command(t, "admin", d("hello", 1))
	require.Equal(t, "isdbgrid", of(hello, "msg"))
	require.Equal(t, true, of(hello, "isWritablePrimary"))
	for _, absent := range []string{"setName", "hosts", "me", "primary", "secondary"} {
		require.Nil(t, of(hello, absent), absent)
	}
	require.NotNil(t, of(hello, "topologyVersion"))
	require.Equal(t, "mongos", of(f.command(t, "admin", d("serverStatus", 1)), "process"))
}

func TestAMongosRefusesWhatBelongsToOneMember(t *testing.T) {
	f := sharded(t, 0)
	for name, command := range map[string]bson.D{
		"find": d("find", "oplog.rs"), "list": d("listCollections", 1), "insert": d("insert", "c", "documents", bson.A{d("_id", 1)}), "ping": d("ping", 1),
	} {
		t.Run(name, func(t *testing.T) {
			err := f.client.Database("local").RunCommand(t.Context(), command).Err()
			refused(t, 20, err)
			require.ErrorContains(t, err, "Can't use 'local' database through mongos")
		})
	}
	for code, commands := range map[int][]bson.D{
		59:  {d("replSetGetConfig", 1), d("replSetStepDown", 1, "force", true), d("top", 1)},
		125: {d("replSetGetStatus", 1)},
	} {
		for _, command := range commands {
			refused(t, code, f.client.Database("admin").RunCommand(t.Context(), command).Err())
		}
	}
	names, err := f.client.ListDatabaseNames(t.Context(), d())
	require.NoError(t, err)
	require.Equal(t, []string{"admin", "config"}, names)
}

func TestAMongosKnowsItsCluster(t *testing.T) {
	f := sharded(t, 0)
	require.NoError(t, f.client.Database("db").CreateCollection(t.Context(), "c"))
	require.NoError(t, f.client.Database("db").CreateCollection(t.Context(), "whole"))
	config := f.client.Database("config")

	version := all(t, config.Collection("version"), d())
	require.Len(t, version, 1)
	id := of(version[0], "clusterId").(bson.ObjectID)
	require.False(t, id.IsZero())
	require.Equal(t, id, of(all(t, config.Collection("version"), d())[0], "clusterId"), "it stays")
	other := sharded(t, 0)
	require.NotEqual(t, id, of(all(t, other.client.Database("config").Collection("version"), d())[0], "clusterId"))

	collections := all(t, config.Collection("collections"), d())
	require.Len(t, collections, 1)
	require.Equal(t, "db.c", of(collections[0], "_id"))
	require.Equal(t, d("owner", int32(1)), of(collections[0], "key"))
	require.Len(t, all(t, config.Collection("shards"), d()), 2)
	databases := all(t, config.Collection("databases"), d())
	require.Len(t, databases, 1)
	require.Equal(t, "shard0", of(databases[0], "primary"))
}

// A document's key is its shard key and its _id, in events and in the tokens that resume behind
// them, as it was before the change.
func TestDocumentKeysHaveTheShardKey(t *testing.T) {
	f := sharded(t, 0)
	whole := f.client.Database("db").Collection("whole")
	cs, err := f.client.Database("db").Watch(t.Context(), driver.Pipeline{})
	require.NoError(t, err)
	closing(t, cs)

	_, err = f.coll().InsertOne(t.Context(), d("_id", 1, "owner", "a"))
	require.NoError(t, err)
	_, err = f.coll().UpdateOne(t.Context(), d("_id", 1), d("$set", d("owner", "b")))
	require.NoError(t, err)
	_, err = f.coll().ReplaceOne(t.Context(), d("_id", 1), d("n", 2))
	require.NoError(t, err)
	_, err = f.coll().DeleteOne(t.Context(), d("_id", 1))
	require.NoError(t, err)
	_, err = whole.InsertOne(t.Context(), d("_id", 1, "owner", "a"))
	require.NoError(t, err)

	var tokens []bson.Raw
	for _, want := range []bson.D{
		d("owner", "a", "_id", int32(1)), d("owner", "a", "_id", int32(1)), d("owner", "b", "_id", int32(1)), d("_id", int32(1)), d("_id", int32(1)),
	} {
		require.True(t, cs.Next(t.Context()), "no event: %v", cs.Err())
		var event struct{ DocumentKey bson.D }
		require.NoError(t, cs.Decode(&event))
		require.Equal(t, want, event.DocumentKey)
		tokens = append(tokens, cs.ResumeToken())
	}
	for i, want := range []string{"update", "replace", "delete", "insert"} {
		again, err := f.client.Database("db").Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(tokens[i]))
		require.NoError(t, err)
		require.Equal(t, want, next(t, again)["operationType"])
		require.NoError(t, again.Close(t.Context()))
	}
}

// High-water marks move although nothing is written, and what is written afterwards is behind each.
func TestMergedHighWaterMarksDoNotStandStill(t *testing.T) {
	f := sharded(t, 0)
	cs, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(time.Millisecond))
	require.NoError(t, err)
	closing(t, cs)
	last := ""
	for i := range 7 {
		require.False(t, cs.TryNext(t.Context()))
		require.NoError(t, cs.Err())
		mark := cs.ResumeToken().Lookup("_data").StringValue()
		if i > 1 { // the first batch, and the first mark, may be where the stream begins
			require.Greater(t, mark, last)
		}
		last = mark
	}
	mark := cs.ResumeToken()
	_, err = f.coll().InsertOne(t.Context(), d("_id", 1, "owner", "a"))
	require.NoError(t, err)
	again, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(mark))
	require.NoError(t, err)
	closing(t, again)
	require.Equal(t, "insert", next(t, again)["operationType"])
}

// A change waits for the other shard, and so does the mark: none is passed over.
func TestAChangeWaitsForTheShardThatIsBehind(t *testing.T) {
	const behind = 300 * time.Millisecond
	f := sharded(t, behind)
	cs, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(20*time.Millisecond))
	require.NoError(t, err)
	closing(t, cs)
	written := time.Now()
	_, err = f.coll().InsertOne(t.Context(), d("_id", 1, "owner", "a"))
	require.NoError(t, err)
	require.False(t, cs.TryNext(t.Context()))
	mark := cs.ResumeToken()
	require.Equal(t, "insert", next(t, cs)["operationType"])
	require.GreaterOrEqual(t, time.Since(written), behind)

	again, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(mark))
	require.NoError(t, err)
	closing(t, again)
	require.Equal(t, "insert", next(t, again)["operationType"])
}

// A mongos waits for a shard's election: a command is late, and an open change stream ends with an
// error with which the client can resume and which does not mention the mongos.
func TestAMongosHidesAnElection(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		ctx := t.Context()
		srv := mongo.New(mongo.Options{Mongos: &mongo.Mongos{}})
		client, err := driver.Connect(options.Client().ApplyURI(srv.URI("mongo.test:27017")).SetDialer(netpipe.Serve(t, srv.Run)))
		require.NoError(t, err)
		c := client.Database("db").Collection("c")
		var opened struct{ Cursor struct{ ID int64 } }
		require.NoError(t, c.Database().RunCommand(ctx, d("aggregate", "c", "pipeline", bson.A{d("$changeStream", d())}, "cursor", d())).Decode(&opened))
		ended := make(chan error, 1)
		go func() {
			ended <- c.Database().RunCommand(ctx, d("getMore", opened.Cursor.ID, "collection", "c", "maxTimeMS", int64(5000))).Err()
		}()
		virtualtime.Wait() // until the server waits for a change
		const election = 12 * time.Second
		start := time.Now()
		srv.StepDown(election)
		err = <-ended
		require.Zero(t, time.Since(start))
		refused(t, 6, err)
		answered, _ := errors.AsType[driver.CommandError](err)
		require.True(t, answered.HasErrorLabel("ResumableChangeStreamError"))
		_, err = c.InsertOne(ctx, d("_id", 2))
		require.NoError(t, err)
		require.Equal(t, election, time.Since(start))

		srv.StepDown(time.Minute)
		start = time.Now()
		refused(t, 133, c.FindOne(ctx, d()).Err())
		require.Equal(t, 20*time.Second, time.Since(start))
		require.NoError(t, client.Disconnect(ctx))
	})
}

// Abandoned transactions belong to a shard, which the mongos names; the mongos has none of its own.
func TestAMongosShowsTheTransactionsOfItsShards(t *testing.T) {
	f := sharded(t, 0)
	require.NoError(t, f.client.Database("db").CreateCollection(t.Context(), "c"))
	s, err := f.client.StartSession()
	require.NoError(t, err)
	defer s.EndSession(t.Context())
	require.NoError(t, s.StartTransaction())
	defer func() { _ = s.AbortTransaction(t.Context()) }()
	_, err = f.coll().InsertOne(driver.NewSessionContext(t.Context(), s), d("_id", 1))
	require.NoError(t, err)
	for local, want := range map[bool]int{false: 1, true: 0} {
		found, err := f.client.Database("admin").Aggregate(t.Context(), bson.A{d("$currentOp", d("idleSessions", true, "localOps", local))})
		require.NoError(t, err)
		var ops []bson.D
		require.NoError(t, found.All(t.Context(), &ops))
		require.Len(t, ops, want)
		if !local {
			require.Equal(t, "shard0", of(ops[0], "shard"))
		}
	}
}

// A mongos reads no oplog before the first getMore: a first batch is empty whatever there is, and
// that history is lost is the answer to the next request.
func TestAMongosAnswersOfHistoryWithTheFirstGetMore(t *testing.T) {
	f := serve(t, mongo.Options{Mongos: &mongo.Mongos{}, OplogEntries: 20})
	for i := range 3 {
		_, err := f.coll().InsertOne(t.Context(), d("_id", i))
		require.NoError(t, err)
	}
	cs, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetStartAtOperationTime(&bson.Timestamp{T: 1}))
	require.NoError(t, err)
	require.Zero(t, cs.RemainingBatchLength())
	require.Equal(t, int32(0), next(t, cs)["documentKey"].(bson.D)[0].Value)
	token := cs.ResumeToken()
	require.NoError(t, cs.Close(t.Context()))
	for i := range 30 {
		_, err := f.coll().InsertOne(t.Context(), d("_id", 10+i))
		require.NoError(t, err)
	}
	cs, err = f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	require.NoError(t, err)
	closing(t, cs)
	require.Equal(t, token, cs.ResumeToken())
	require.False(t, cs.Next(t.Context()))
	refused(t, 286, cs.Err())
}
