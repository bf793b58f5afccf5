package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A request for changes that is never answered is asked again on another connection, by the same leader.
func TestG1AnAnswerThatNeverComesIsAskedForAgain(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: "the first batch of a mongos is empty, so two delayed requests follow each other"}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.DelayMongo(2, time.Hour, "getMore")
		time.Sleep(2 * time.Second) // the request under way is answered before
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

// A leader whose requests for changes are not answered for STALL_AFTER makes room for a replica that fares better.
func TestG1ALeaderWhoseSourceIsSilentMakesRoom(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
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

// G1: a server that needs long for the first answer of a stream that resumes, because much was written elsewhere since, gets the time
// that it needs in the end. Each attempt makes it begin again, so with a limit that stays the same the stream would stand still for ever.
func TestG1ASlowFirstAnswerIsWaitedForInTheEnd(t *testing.T) {
	world.InVirtualTime(t, world.Options{Patience: time.Hour}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(10, 2)
		w.Published()
		a.End()
		w.DelayMongo(1000, 3*time.Minute, "aggregate")
		b := w.StartProducer("b", nil)
		c := w.StartProducer("c", nil)
		w.InsertMany(10, 2)
		w.Published()
		require.Contains(t, b.Log.Text()+c.Log.Text(), "the next attempt gets twice the time")
		b.End()
		c.End()
	})
}
