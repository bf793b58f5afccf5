package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func withSessionKey(key envelope.SessionKey) func(*producer.Config, *producer.Options) {
	return func(c *producer.Config, _ *producer.Options) { c.SessionKey = key }
}

// failure waits until the producer has ended on its own, and returns its error.
func failure(p *world.Producer) error {
	select {
	case err := <-p.Done:
		return err
	case <-time.After(time.Minute):
		p.Stop()
		return <-p.Done
	}
}

// G2: aggregates that share sessions keep their order, also over a takeover and the repeats after
// it.
func TestG2AggregatesShareTheirBuckets(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		key := envelope.Buckets(4)
		a := w.StartProducer("a", withSessionKey(key))
		w.Leads("a")
		w.InsertMany(300, 30)
		w.Eventually("some is published", func() bool { return w.Bus.Stats(world.Topic).Accepted > 100 })
		a.Vanish()
		w.InsertMany(300, 30)
		b := w.StartProducer("b", withSessionKey(key))
		w.Published()
		b.End()
		a.End()

		sessions := map[string]string{}
		for _, m := range w.Took() {
			aggregate := m.Properties["cloudEvents_subject"].(string)
			require.Equal(w, key.Session(aggregate), m.SessionID)
			sessions[m.SessionID] = aggregate
		}
		require.Len(w, sessions, 4)
	})
}

// G2: with another key, events of one aggregate would wait in two sessions and be applied out of
// order.
func TestG2AnotherSessionKeyIsRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", withSessionKey(envelope.Buckets(4)))
		w.Leads("a")
		w.InsertMany(50, 10)
		w.Published()

		// A new revision is refused while the old one leads, which continues.
		other := w.StartProducer("other", withSessionKey(envelope.Buckets(8)))
		require.ErrorContains(w, failure(other), "it was bucket:4 and is now bucket:8")
		leading := operate(w, "session-key", "bucket:8", "--drained")
		require.Equal(w, commandline.ExitProblem, leading.Code)
		require.Contains(w, leading.Err, "a leads stream")
		w.InsertMany(50, 10)
		w.Published()
		a.End()

		// It is refused without a leader as well, also with the default key.
		other = w.StartProducer("other", nil)
		require.ErrorContains(w, failure(other), "producer session-key aggregate --drained")
		undrained := operate(w, "session-key", "bucket:8")
		require.Equal(w, commandline.ExitProblem, undrained.Code)
		require.Contains(w, undrained.Err, "give --drained")
		require.Equal(w, "bucket:4", w.Checkpoint().SessionKey)

		epoch := w.Checkpoint().Epoch
		require.Zero(w, operate(w, "session-key", "bucket:8", "--drained").Code)
		require.Equal(w, "bucket:8", w.Checkpoint().SessionKey)
		require.Equal(w, epoch+1, w.Checkpoint().Epoch)
		require.EqualValues(w, 100, w.Checkpoint().Published)
		require.Contains(w, operate(w, "status").Out, "bucket:8")
		require.Contains(w, operate(w, "session-key", "bucket:8").Out, "nothing to do")

		b := w.StartProducer("b", withSessionKey(envelope.Buckets(8)))
		w.InsertMany(50, 10)
		w.Published()
		b.End()
		require.Equal(w, "bucket:8", w.Checkpoint().SessionKey)

		// Moving the token does not change the key.
		require.Zero(w, operate(w, "token", "rewind", "--to", "2000-01-01T00:00:00Z").Code)
		require.Equal(w, "bucket:8", w.Checkpoint().SessionKey)
		require.Zero(w, operate(w, "session-key", "aggregate", "--drained").Code)
		require.Empty(w, w.Checkpoint().SessionKey)
	})
}

func TestTheErrorShowsHowToNameASessionKey(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		for _, args := range [][]string{{"session-key"}, {"session-key", "buckets"}, {"session-key", "bucket:0"}, {"session-key", "bucket:1", "2"}} {
			wrong := operate(w, args...)
			require.Equal(w, commandline.ExitUsage, wrong.Code)
			require.Regexp(w, "aggregate, or bucket:N|does not take", wrong.Err)
		}
	})
}
