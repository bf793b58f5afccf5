package pipeline_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A client is closed at once, although an answer is outstanding. If it spun until a deadline
// instead, virtual time would stand still, and so would this test.
func TestAClientClosesWhileAnAnswerIsOwed(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		client, err := driver.Connect(w.MongoOptions())
		require.NoError(t, err)
		w.DelayMongo(1, time.Hour, "find")
		var asking sync.WaitGroup
		asking.Go(func() {
			if err := client.Database("db").Collection("c").FindOne(w.Context(), bson.D{}).Err(); err == nil {
				t.Error("find was answered")
			}
		})
		virtualtime.Wait()

		start := time.Now()
		require.NoError(t, mongodb.Disconnect(w.Context(), client, time.Minute))
		require.Zero(t, time.Since(start))
		asking.Wait()
	})
}
