package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// leaveUnanswered makes MongoDB hold back its answers to the next n commands of these names. Everything else is answered, the
// driver's monitor too: so a single connection fails that something between the two has forgotten.
func (w *producerWorld) leaveUnanswered(n int, names ...string) {
	w.Helper()
	require.NoError(w, w.events.Database().Client().Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: n}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: names}, {Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: time.Hour.Milliseconds()},
		}},
	}).Err())
}

// A request for changes that is never answered is asked again on another connection, by the same leader.
func TestG1AnAnswerThatNeverComesIsAskedForAgain(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		w.leaveUnanswered(2, "getMore")
		time.Sleep(2 * time.Second) // the request under way is answered before
		for range 2 {
			w.insertMany(10, 2)
			began := time.Now()
			w.published()
			require.Less(t, time.Since(began), 40*time.Second)
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, w.checkpoint().Epoch)
		a.end()
	})
}

// A leader whose requests for changes are not answered for STALL_AFTER makes room for a replica that fares better.
func TestG1ALeaderWhoseSourceIsSilentMakesRoom(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		b := w.start("b", nil)
		w.leaveUnanswered(2, "getMore", "aggregate")
		time.Sleep(2 * time.Second)
		w.insertMany(10, 2)
		began := time.Now()
		w.published()
		require.Greater(t, time.Since(began), 55*time.Second, "STALL_AFTER")
		require.Less(t, time.Since(began), 80*time.Second)
		w.leads("b")
		require.Contains(t, a.log.text(), "stepped down for another leader")
		require.Contains(t, a.log.text(), "MongoDB has not answered for too long")
		b.end()
		a.end()
	})
}
