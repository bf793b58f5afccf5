package mongo_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// An abandoned transaction shows its client by the name of the application, and a client with the
// same account may end it.
func TestATransactionOutlivesItsClient(t *testing.T) {
	f := serve(t, mongo.Options{})
	ctx, c := t.Context(), f.coll()
	insert(t, c, 1)
	inc := d("$inc", d("n", 1))
	gone, err := driver.Connect(options.Client().ApplyURI(f.uri).SetAppName("gone"))
	require.NoError(t, err)
	session, err := gone.StartSession()
	require.NoError(t, err)
	require.NoError(t, session.StartTransaction())
	_, err = gone.Database("db").Collection("c").UpdateOne(driver.NewSessionContext(ctx, session), d("_id", 1), inc)
	require.NoError(t, err)
	ended, end := context.WithCancel(ctx)
	end()
	_ = gone.Disconnect(ended) // closes the connections, and has no time to end the session

	idle := func() (found []bson.M) {
		cur, err := f.client.Database("admin").Aggregate(ctx, driver.Pipeline{
			d("$currentOp", d("allUsers", false, "idleSessions", true)), d("$match", d("type", "idleSession", "appName", "gone", "active", false)),
		})
		require.NoError(t, err)
		require.NoError(t, cur.All(ctx, &found))
		return found
	}
	found := idle()
	require.Len(t, found, 1)
	require.Equal(t, "inactive transaction", found[0]["desc"])
	transaction := found[0]["transaction"].(bson.D)
	require.Positive(t, of(transaction, "timeOpenMicros"))
	require.Positive(t, of(transaction, "timeInactiveMicros"))

	other, s := begin(ctx, t, f)
	_, err = c.UpdateOne(other, d("_id", 1), inc)
	refused(t, 112, err)
	require.NoError(t, s.AbortTransaction(ctx))

	id := of(found[0]["lsid"].(bson.D), "id")
	f.command(t, "admin", d("killSessions", bson.A{d("id", id)}))
	require.Empty(t, idle())
	_, err = c.UpdateOne(ctx, d("_id", 1), inc)
	require.NoError(t, err)
	require.Equal(t, []bson.D{d("_id", int32(1), "n", int32(1))}, all(t, c, d()), "what the one that is gone had written is not there")
}
