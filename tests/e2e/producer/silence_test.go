package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The same leader repeats a request for changes that is never answered on another connection.
func TestG1AnAnswerThatNeverComesIsAskedForAgain(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: "the first batch of a mongos is empty, so two delayed requests follow each other"}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		w.DelayMongo(2, time.Hour, "getMore")
		time.Sleep(2 * time.Second) // the request in flight is answered before
		for range 2 {
			w.InsertMany(10, 2)
			began := time.Now()
			w.Published()
			require.Less(t, time.Since(began), 40*time.Second)
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, w.Checkpoint().Epoch)
		a.End()
	})
}

// A leader whose requests for changes are not answered for STALL_AFTER steps down for a replica
// that may do better.
func TestG1ALeaderWhoseSourceIsSilentMakesRoom(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		b := w.StartProducer("b", nil)
		w.DelayMongo(2, time.Hour, "getMore", "aggregate")
		time.Sleep(2 * time.Second)
		w.InsertMany(10, 2)
		began := time.Now()
		w.Published()
		require.Greater(t, time.Since(began), 55*time.Second, "STALL_AFTER")
		require.Less(t, time.Since(began), 80*time.Second)
		w.Leads("b")
		require.Contains(t, a.Log.Text(), "stepped down for another leader")
		require.Contains(t, a.Log.Text(), "MongoDB has not answered for too long")
		b.End()
		a.End()
	})
}

// G1: a server that needs long for the first answer of a resuming stream, because much was written
// elsewhere since, eventually gets the time that it needs. Each attempt makes it start over, so
// with a constant limit the stream would never continue.
func TestG1ASlowFirstAnswerIsWaitedForInTheEnd(t *testing.T) {
	world.InVirtualTime(t, world.Options{Patience: 12 * time.Hour, ReplicaSet: "a mongos scans in getMore, and aggregates are delayed"}, func(w *world.World) {
		ran(w)
		w.DelayMongo(1000, 40*time.Minute, "aggregate")
		b := w.StartProducer("b", nil)
		c := w.StartProducer("c", nil)
		w.InsertMany(10, 2)
		w.Published()
		require.Contains(t, b.Log.Text()+c.Log.Text(), "the next attempt gets twice the time")
		b.End()
		c.End()
	})
}
