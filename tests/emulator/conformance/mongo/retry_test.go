package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// A write whose reply was lost is retried by the driver and must show once: in the
// collection and in the change stream.
func TestRetriedWriteIsAppliedOnce(t *testing.T) {
	for _, c := range []struct {
		command string
		write   func(t *testing.T, f *fixture) error
	}{
		{"insert", func(t *testing.T, f *fixture) error {
			_, err := f.coll().InsertOne(t.Context(), d("_id", "new", "n", 1))
			return err
		}},
		{"update", func(t *testing.T, f *fixture) error {
			r, err := f.coll().UpdateOne(t.Context(), d("_id", "x"), d("$inc", d("n", 1)))
			if err == nil {
				require.EqualValues(t, 1, r.ModifiedCount)
			}
			return err
		}},
		{"delete", func(t *testing.T, f *fixture) error {
			r, err := f.coll().DeleteOne(t.Context(), d("_id", "x"))
			if err == nil {
				require.EqualValues(t, 1, r.DeletedCount)
			}
			return err
		}},
		{"findAndModify", func(t *testing.T, f *fixture) error {
			return f.coll().FindOneAndUpdate(t.Context(), d("_id", "x"), d("$inc", d("n", 1))).Err()
		}},
		{"bulkWrite", func(t *testing.T, f *fixture) error {
			_, err := f.client.BulkWrite(t.Context(), []driver.ClientBulkWrite{{Database: "db", Collection: "c", Model: driver.NewClientInsertOneModel().SetDocument(d("_id", "new"))}})
			return err
		}},
	} {
		t.Run(c.command, func(t *testing.T) {
			f := serve(t, mongo.Options{})
			_, err := f.coll().InsertOne(t.Context(), d("_id", "x", "n", 0))
			require.NoError(t, err)
			cs, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(20*time.Millisecond))
			require.NoError(t, err)
			closing(t, cs)
			f.embedded(t).LoseReplies(c.command, 1)
			require.NoError(t, c.write(t, f))
			next(t, cs)
			require.False(t, cs.TryNext(t.Context()), "the retry was applied again")
			require.NoError(t, cs.Err())
		})
	}
}

func TestFailCommand(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	plain := f.connect(t, func(o *options.ClientOptions) { o.SetRetryWrites(false) }).Database("db").Collection("c")

	f.failCommand(t, d("times", 1), d("failCommands", bson.A{"insert"}, "closeConnection", true))
	_, err := plain.InsertOne(ctx, d("_id", 1))
	require.True(t, driver.IsNetworkError(err), "%v", err)
	_, err = plain.InsertOne(ctx, d("_id", 1))
	require.NoError(t, err, "closeConnection strikes before the command runs")

	f.failCommand(t, d("times", 1), d("failCommands", bson.A{"insert"}, "errorCode", 10107))
	_, err = c.InsertOne(ctx, d("_id", 2))
	require.NoError(t, err, "the generated RetryableWriteError label makes the driver retry")

	f.failCommand(t, d("times", 1), d("failCommands", bson.A{"insert"}, "errorCode", 10107, "errorLabels", bson.A{}))
	_, err = c.InsertOne(ctx, d("_id", 3))
	require.ErrorContains(t, err, "NotWritablePrimary")

	f.failCommand(t, d("times", 1), d("failCommands", bson.A{"insert"}, "writeConcernError", d("code", 64, "errmsg", "waiting timed out")))
	_, err = c.InsertOne(ctx, d("_id", 4))
	var we driver.WriteException
	require.ErrorAs(t, err, &we)
	require.Equal(t, 64, we.WriteConcernError.Code)
	require.Len(t, all(t, c, d("_id", 4)), 1, "the write happened all the same")
	f.failCommand(t, "off", d())
}

func TestStepDownIsSurvivedByRetries(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	cs, err := c.Watch(ctx, driver.Pipeline{})
	require.NoError(t, err)
	closing(t, cs)
	_, err = c.InsertOne(ctx, d("_id", 1))
	require.NoError(t, err)
	f.embedded(t).StepDown(50 * time.Millisecond)
	_, err = c.InsertOne(ctx, d("_id", 2))
	require.NoError(t, err)
	require.Equal(t, d("_id", int32(1)), next(t, cs)["documentKey"])
	require.Equal(t, d("_id", int32(2)), next(t, cs)["documentKey"])
}

func TestStepDownAnswersWithTheRightCodes(t *testing.T) {
	f := serve(t, mongo.Options{})
	direct := f.connect(t, func(o *options.ClientOptions) { o.SetDirect(true).SetRetryWrites(false).SetRetryReads(false) })
	f.embedded(t).StepDown(time.Hour)
	_, err := direct.Database("db").Collection("c").InsertOne(t.Context(), d("_id", 1))
	require.ErrorContains(t, err, "(NotWritablePrimary)")
	var hello bson.M
	require.NoError(t, direct.Database("admin").RunCommand(t.Context(), d("hello", 1)).Decode(&hello))
	require.Equal(t, false, hello["isWritablePrimary"])
	f.embedded(t).StepDown(0)
}
