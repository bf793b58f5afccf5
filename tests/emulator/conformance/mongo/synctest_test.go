package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// In a bubble, over in-memory connections, an idle stream's waits cost no real
// time, and the set's clock moves by its ten-second no-op.
func TestVirtualTime(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := netpipe.Serve(t, mongo.New(mongo.Options{Host: "mongo.test:27017"}).Run)
		client, err := driver.Connect(options.Client().ApplyURI(mongo.URI("mongo.test:27017")).SetDialer(l))
		require.NoError(t, err)
		c := client.Database("db").Collection("c")
		cs, err := c.Watch(ctx, driver.Pipeline{})
		require.NoError(t, err)
		first := cs.ResumeToken().Lookup("_data").StringValue()
		start := time.Now()
		for range 30 {
			require.False(t, cs.TryNext(ctx))
			require.NoError(t, cs.Err())
		}
		require.GreaterOrEqual(t, time.Since(start), 29*time.Second)
		require.Less(t, first, cs.ResumeToken().Lookup("_data").StringValue())
		_, err = c.InsertOne(ctx, d("_id", 1))
		require.NoError(t, err)
		require.Equal(t, d("_id", int32(1)), next(t, cs)["documentKey"])
		require.NoError(t, cs.Close(ctx))
		require.NoError(t, client.Disconnect(ctx))
	})
}

// A TTL index deletes expired documents within a minute, as a change event shows; it does not
// delete documents that are younger, have no date, or are outside its partial filter.
func TestTTL(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := netpipe.Serve(t, mongo.New(mongo.Options{Host: "mongo.test:27017"}).Run)
		client, err := driver.Connect(options.Client().ApplyURI(mongo.URI("mongo.test:27017")).SetDialer(l))
		require.NoError(t, err)
		c := client.Database("db").Collection("c")
		_, err = c.Indexes().CreateOne(ctx, driver.IndexModel{Keys: d("at", 1), Options: options.Index().SetExpireAfterSeconds(100).SetPartialFilterExpression(d("temporary", true))})
		require.NoError(t, err)
		start := time.Now()
		_, err = c.InsertMany(ctx, []any{
			d("_id", "due", "temporary", true, "at", start), d("_id", "list", "temporary", true, "at", []time.Time{start.Add(time.Hour), start}),
			d("_id", "young", "temporary", true, "at", start.Add(time.Hour)), d("_id", "other", "at", start), d("_id", "none", "temporary", true, "at", 1),
		})
		require.NoError(t, err)
		cs, err := c.Watch(ctx, driver.Pipeline{})
		require.NoError(t, err)
		for _, id := range []string{"due", "list"} {
			e := next(t, cs)
			require.Equal(t, "delete", e["operationType"])
			require.Equal(t, d("_id", id), e["documentKey"])
			require.GreaterOrEqual(t, time.Since(start), 100*time.Second)
			require.LessOrEqual(t, time.Since(start), 161*time.Second)
		}
		n, err := c.CountDocuments(ctx, d())
		require.NoError(t, err)
		require.EqualValues(t, 3, n)
		require.NoError(t, cs.Close(ctx))
		require.NoError(t, client.Disconnect(ctx))
	})
}
