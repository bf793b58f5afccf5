package pipeline_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// A client is closed at once, although an answer is outstanding. If it spun until a deadline
// instead, virtual time would stand still, and so would this test.
func TestAClientClosesWhileAnAnswerIsOwed(t *testing.T) {
	hung := time.AfterFunc(time.Minute, func() { panic("closing a MongoDB client spins") })
	defer hung.Stop()
	virtualtime.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		server, network := mongo.New(mongo.Options{Host: "mongo:27017"}), netpipe.Listen("mongo:27017")
		var parties sync.WaitGroup
		parties.Go(func() {
			if err := server.Run(ctx, network); err != nil {
				t.Errorf("run MongoDB: %v", err)
			}
		})
		client, err := driver.Connect(options.Client().ApplyURI(mongo.URI("mongo:27017")).SetDialer(network))
		require.NoError(t, err)
		require.NoError(t, client.Database("admin").RunCommand(ctx, bson.D{
			{Key: "configureFailPoint", Value: "failCommand"},
			{Key: "mode", Value: "alwaysOn"},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"find"}},
				{Key: "blockConnection", Value: true},
				{Key: "blockTimeMS", Value: time.Hour.Milliseconds()},
			}},
		}).Err())
		parties.Go(func() {
			if err := client.Database("db").Collection("c").FindOne(ctx, bson.D{}).Err(); err == nil {
				t.Error("find was answered")
			}
		})
		virtualtime.Wait()

		start := time.Now()
		require.NoError(t, mongodb.Disconnect(ctx, client, time.Minute))
		require.Zero(t, time.Since(start))
		cancel()
		parties.Wait()
	})
}
