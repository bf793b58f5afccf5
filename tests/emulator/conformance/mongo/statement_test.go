package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// A retryable write that is cut off after any of its statements is finished by the
// retry: every statement takes effect once, in order.
func TestRetryFinishesAfterTheStatementThatWasCutOff(t *testing.T) {
	for _, skip := range []int{0, 2, 4, 7} {
		f := serve(t, mongo.Options{})
		c := f.coll()
		_, err := c.InsertOne(t.Context(), d("_id", "n", "n", 0))
		require.NoError(t, err)
		cs, err := c.Watch(t.Context(), driver.Pipeline{})
		require.NoError(t, err)
		closing(t, cs)
		f.command(t, "admin", d("configureFailPoint", "onPrimaryTransactionalWrite", "mode", d("skip", skip)))
		inc := func() driver.WriteModel {
			return driver.NewUpdateOneModel().SetFilter(d("_id", "n")).SetUpdate(d("$inc", d("n", 1)))
		}
		insert := func(id int) driver.WriteModel { return driver.NewInsertOneModel().SetDocument(d("_id", id)) }
		models := []driver.WriteModel{insert(1), insert(2), insert(3), inc(), inc(), inc(), driver.NewDeleteOneModel().SetFilter(d("_id", 1)), driver.NewDeleteOneModel().SetFilter(d("_id", 2))}
		var res *driver.BulkWriteResult
		for _, part := range [][]driver.WriteModel{models[:3], models[3:6], models[6:]} {
			res, err = c.BulkWrite(t.Context(), part)
			require.NoError(t, err) // a client with a time-out retries until it succeeds
		}
		f.command(t, "admin", d("configureFailPoint", "onPrimaryTransactionalWrite", "mode", "off"))
		require.EqualValues(t, 2, res.DeletedCount)
		for _, want := range []string{"insert", "insert", "insert", "update", "update", "update", "delete", "delete"} {
			require.Equal(t, want, next(t, cs)["operationType"])
		}
		require.False(t, cs.TryNext(t.Context()))
	}
}

// What a point before the commit stops has no effect: neither the attempt nor its
// retry, when the point strikes at both; after that the write is done once.
func TestFailBeforeCommit(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.embedded(t) // a 6.0.5 reports no error here
	f.command(t, "admin", d("configureFailPoint", "onPrimaryTransactionalWrite", "mode", d("times", 2), "data", d("failBeforeCommitExceptionCode", 1)))
	cs, err := f.coll().Watch(t.Context(), driver.Pipeline{})
	require.NoError(t, err)
	closing(t, cs)
	docs := []any{d("_id", 1), d("_id", 2)}
	impatient := f.connect(t, func(o *options.ClientOptions) { o.Timeout = nil }) // with a time-out it would try again and again
	_, err = impatient.Database("db").Collection("c").InsertMany(t.Context(), docs)
	require.Error(t, err)
	require.False(t, cs.TryNext(t.Context()))
	_, err = f.coll().InsertMany(t.Context(), docs)
	require.NoError(t, err)
	for id := range 2 {
		require.Equal(t, d("_id", int32(id+1)), next(t, cs)["documentKey"])
	}
	require.False(t, cs.TryNext(t.Context()))
}
