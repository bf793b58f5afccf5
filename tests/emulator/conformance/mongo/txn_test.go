package mongo_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// begin opens a session with a running transaction.
func begin(ctx context.Context, t *testing.T, f *fixture) (context.Context, *driver.Session) {
	t.Helper()
	s, err := f.client.StartSession()
	require.NoError(t, err)
	t.Cleanup(func() { s.EndSession(context.WithoutCancel(t.Context())) })
	require.NoError(t, s.StartTransaction())
	return driver.NewSessionContext(ctx, s), s
}

func TestTransactionReadsOneSnapshotAndCommitsAtOnce(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	_, err := c.InsertMany(ctx, []any{d("_id", 1, "n", 0), d("_id", 2, "n", 0)})
	require.NoError(t, err)
	cs, err := c.Watch(ctx, driver.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(20*time.Millisecond))
	require.NoError(t, err)
	closing(t, cs)

	sc, s := begin(ctx, t, f)
	_, err = c.UpdateOne(sc, d("_id", 1), d("$inc", d("n", 5)))
	require.NoError(t, err)
	_, err = c.InsertOne(sc, d("_id", 3))
	require.NoError(t, err)
	_, err = c.UpdateOne(ctx, d("_id", 2), d("$inc", d("n", 1))) // another client, after the snapshot
	require.NoError(t, err)

	var inside bson.D
	require.NoError(t, c.FindOne(sc, d("_id", 2)).Decode(&inside))
	require.Equal(t, d("_id", int32(2), "n", int32(0)), inside, "the snapshot does not move")
	require.NoError(t, c.FindOne(sc, d("_id", 1)).Decode(&inside))
	require.Equal(t, d("_id", int32(1), "n", int32(5)), inside, "it sees its own write")
	require.Equal(t, []bson.D{d("_id", int32(1), "n", int32(0)), d("_id", int32(2), "n", int32(1))}, all(t, c, bson.D{}), "no other client does")

	require.Equal(t, d("_id", int32(2)), next(t, cs)["documentKey"])
	require.False(t, cs.TryNext(ctx), "uncommitted writes are no events")
	require.NoError(t, s.CommitTransaction(ctx))
	a, b := next(t, cs), next(t, cs)
	require.Equal(t, []any{"update", "insert"}, []any{a["operationType"], b["operationType"]})
	require.Equal(t, a["clusterTime"], b["clusterTime"])
	require.NotNil(t, a["lsid"])
	require.Equal(t, a["txnNumber"], b["txnNumber"])
	require.Less(t, data(a), data(b))
}

func data(event bson.M) string {
	for _, e := range event["_id"].(bson.D) {
		if e.Key == "_data" {
			return e.Value.(string)
		}
	}
	return ""
}

func TestWriteConflicts(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	_, err := c.InsertMany(ctx, []any{d("_id", 1), d("_id", 2)})
	require.NoError(t, err)

	t.Run("with an open transaction", func(t *testing.T) {
		one, s := begin(ctx, t, f)
		_, err := c.UpdateOne(one, d("_id", 1), d("$set", d("by", "one")))
		require.NoError(t, err)
		two, _ := begin(ctx, t, f)
		_, err = c.UpdateOne(two, d("_id", 1), d("$set", d("by", "two")))
		var se driver.ServerError
		require.ErrorAs(t, err, &se)
		require.True(t, se.HasErrorCode(112) && se.HasErrorLabel("TransientTransactionError"), "%v", err)
		require.NoError(t, s.CommitTransaction(ctx))
	})
	t.Run("with a commit after the snapshot", func(t *testing.T) {
		sc, _ := begin(ctx, t, f)
		require.NoError(t, c.FindOne(sc, d("_id", 2)).Err())
		_, err := c.UpdateOne(ctx, d("_id", 2), d("$set", d("x", 1)))
		require.NoError(t, err)
		_, err = c.DeleteOne(sc, d("_id", 2))
		var se driver.ServerError
		require.ErrorAs(t, err, &se)
		require.True(t, se.HasErrorCode(112), "%v", err)
	})
	t.Run("a write outside waits", func(t *testing.T) {
		sc, s := begin(ctx, t, f)
		_, err := c.UpdateOne(sc, d("_id", 1), d("$set", d("by", "txn")))
		require.NoError(t, err)
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err = c.UpdateOne(short, d("_id", 1), d("$set", d("by", "late")))
		require.Error(t, err)
		require.NoError(t, s.AbortTransaction(ctx))
		_, err = c.UpdateOne(ctx, d("_id", 1), d("$set", d("by", "late")))
		require.NoError(t, err)
	})
}

func TestDuplicateKeyAbortsTransaction(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	_, err := c.InsertOne(ctx, d("_id", 1))
	require.NoError(t, err)
	sc, s := begin(ctx, t, f)
	_, err = c.InsertOne(sc, d("_id", 2))
	require.NoError(t, err)
	_, err = c.InsertOne(sc, d("_id", 1))
	require.True(t, driver.IsDuplicateKeyError(err), "%v", err)
	_, err = c.InsertOne(sc, d("_id", 3))
	var se driver.ServerError
	require.ErrorAs(t, err, &se)
	require.True(t, se.HasErrorCode(251), "%v", err)
	require.Error(t, s.CommitTransaction(ctx))
	require.Equal(t, []bson.D{d("_id", int32(1))}, all(t, c, bson.D{}))
}

func TestAbortLeavesNothing(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	sc, s := begin(ctx, t, f)
	_, err := c.InsertOne(sc, d("_id", 1))
	require.NoError(t, err)
	names, err := f.client.Database("db").ListCollectionNames(ctx, bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)
	require.NoError(t, s.AbortTransaction(ctx))
	require.Empty(t, all(t, c, bson.D{}))
	_, err = c.InsertOne(ctx, d("_id", 1))
	require.NoError(t, err)
}

// Many clients move amounts between accounts; conflicts are retried by the driver
// and no amount is lost or made.
func TestConcurrentTransactionsKeepTheTotal(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	const accounts, workers, rounds = 4, 4, 10
	for i := range accounts {
		_, err := c.InsertOne(ctx, d("_id", i, "n", 100))
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			errs[w] = f.client.UseSession(ctx, func(sc context.Context) error {
				for i := range rounds {
					_, err := driver.SessionFromContext(sc).WithTransaction(sc, func(sc context.Context) (any, error) {
						if _, err := c.UpdateOne(sc, d("_id", (w+i)%accounts), d("$inc", d("n", -1))); err != nil {
							return nil, err
						}
						return c.UpdateOne(sc, d("_id", (w+i+1)%accounts), d("$inc", d("n", 1)))
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	total := int32(0)
	for _, a := range all(t, c, bson.D{}) {
		total += a[1].Value.(int32)
	}
	require.EqualValues(t, accounts*100, total)
}

func TestCommitWhoseReplyWasLostIsRetried(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	sc, s := begin(ctx, t, f)
	_, err := c.InsertOne(sc, d("_id", 1))
	require.NoError(t, err)
	f.embedded(t).LoseReplies("commitTransaction", 1)
	require.NoError(t, s.CommitTransaction(ctx))
	require.Len(t, all(t, c, bson.D{}), 1)
}

func TestSnapshotSessionsReadTheChosenMoment(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0)
	ctx, c := t.Context(), f.coll()
	_, err := c.InsertOne(ctx, d("_id", 1, "v", "old"))
	require.NoError(t, err)
	s, err := f.client.StartSession(options.Session().SetSnapshot(true))
	require.NoError(t, err)
	defer s.EndSession(ctx)
	sc := driver.NewSessionContext(ctx, s)
	var got bson.D
	require.NoError(t, c.FindOne(sc, d("_id", 1)).Decode(&got))
	_, err = c.UpdateOne(ctx, d("_id", 1), d("$set", d("v", "new")))
	require.NoError(t, err)
	_, err = c.DeleteOne(ctx, d("_id", 1))
	require.NoError(t, err)
	require.NoError(t, c.FindOne(sc, d("_id", 1)).Decode(&got))
	require.Equal(t, d("_id", int32(1), "v", "old"), got)
}
