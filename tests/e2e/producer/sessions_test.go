package producer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func withSessionKey(key envelope.SessionKey) adjustment {
	return func(c *producer.Config, _ *producer.Options) { c.SessionKey = key }
}

// G2: aggregates that share sessions keep their order, also over a takeover and the repeats after
// it.
func TestG2AggregatesShareTheirBuckets(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		key := envelope.Buckets(4)
		a := startLeader(w, "a", withSessionKey(key))
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
		a := startAndPublish(w, "a", withSessionKey(envelope.Buckets(4)), 50, 10)

		// A new revision is refused while the old one leads, which continues.
		require.ErrorContains(w, w.StartProducer("other", withSessionKey(envelope.Buckets(8))).Failed(), "it was bucket:4 and is now bucket:8")
		operate(w, "session-key", "bucket:8", "--drained").fails("a leads stream")
		w.InsertMany(50, 10)
		w.Published()
		a.End()

		// It is refused without a leader as well, also with the default key.
		require.ErrorContains(w, w.StartProducer("other", nil).Failed(), "producer session-key aggregate --drained")
		operate(w, "session-key", "bucket:8").fails("give --drained")
		require.Equal(w, "bucket:4", w.Checkpoint().SessionKey)

		epoch := w.Checkpoint().Epoch
		operate(w, "session-key", "bucket:8", "--drained").succeeds()
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
		operate(w, "token", "rewind", "--to", "2000-01-01T00:00:00Z").succeeds()
		require.Equal(w, "bucket:8", w.Checkpoint().SessionKey)
		operate(w, "session-key", "aggregate", "--drained").succeeds()
		require.Empty(w, w.Checkpoint().SessionKey)
	})
}
