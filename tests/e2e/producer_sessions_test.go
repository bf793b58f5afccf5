package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func withSessionKey(key envelope.SessionKey) func(*producer.Config, *producer.Options) {
	return func(c *producer.Config, _ *producer.Options) { c.SessionKey = key }
}

// failure waits until the producer has ended by itself.
func (p *runningProducer) failure() error {
	p.w.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(time.Minute):
		p.stop()
		return <-p.done
	}
}

// G2: aggregates that share sessions keep their order, also over a takeover and what is sent again after it.
func TestG2AggregatesShareTheirBuckets(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		key := envelope.Buckets(4)
		a := w.start("a", withSessionKey(key))
		w.leads("a")
		w.insertMany(300, 30)
		w.eventually("some is published", func() bool { return w.bus.Stats(topic).Accepted > 100 })
		a.vanish()
		w.insertMany(300, 30)
		b := w.start("b", withSessionKey(key))
		w.published()
		b.end()
		a.end()

		sessions := map[string]string{}
		for _, m := range w.took() {
			aggregate := m.Properties["cloudEvents_subject"].(string)
			require.Equal(w, key.Session(aggregate), m.SessionID)
			sessions[m.SessionID] = aggregate
		}
		require.Len(w, sessions, 4)
	})
}

// G2: with another key, events of one aggregate would wait in two sessions and be applied out of order.
func TestG2AnotherSessionKeyIsRefused(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", withSessionKey(envelope.Buckets(4)))
		w.leads("a")
		w.insertMany(50, 10)
		w.published()

		// A new revision is refused while the old one leads, which goes on.
		other := w.start("other", withSessionKey(envelope.Buckets(8)))
		require.ErrorContains(w, other.failure(), "it was bucket:4 and is bucket:8 now")
		leading := w.operate("session-key", "bucket:8", "--drained")
		require.Equal(w, commandline.ExitProblem, leading.code)
		require.Contains(w, leading.err, "a leads stream")
		w.insertMany(50, 10)
		w.published()
		a.end()

		// And when nobody leads; also the default.
		other = w.start("other", nil)
		require.ErrorContains(w, other.failure(), "producer session-key aggregate --drained")
		undrained := w.operate("session-key", "bucket:8")
		require.Equal(w, commandline.ExitProblem, undrained.code)
		require.Contains(w, undrained.err, "give --drained")
		require.Equal(w, "bucket:4", w.checkpoint().SessionKey)

		epoch := w.checkpoint().Epoch
		require.Zero(w, w.operate("session-key", "bucket:8", "--drained").code)
		require.Equal(w, "bucket:8", w.checkpoint().SessionKey)
		require.Equal(w, epoch+1, w.checkpoint().Epoch)
		require.EqualValues(w, 100, w.checkpoint().Published)
		require.Contains(w, w.operate("status").out, "bucket:8")
		require.Contains(w, w.operate("session-key", "bucket:8").out, "nothing to do")

		b := w.start("b", withSessionKey(envelope.Buckets(8)))
		w.insertMany(50, 10)
		w.published()
		b.end()
		require.Equal(w, "bucket:8", w.checkpoint().SessionKey)

		// Moving the token leaves the key alone.
		require.Zero(w, w.operate("token", "rewind", "--to", "2000-01-01T00:00:00Z").code)
		require.Equal(w, "bucket:8", w.checkpoint().SessionKey)
		require.Zero(w, w.operate("session-key", "aggregate", "--drained").code)
		require.Empty(w, w.checkpoint().SessionKey)
	})
}

func TestOperatorIsToldHowToNameASessionKey(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		for _, args := range [][]string{{"session-key"}, {"session-key", "buckets"}, {"session-key", "bucket:0"}, {"session-key", "bucket:1", "2"}} {
			wrong := w.operate(args...)
			require.Equal(w, commandline.ExitUsage, wrong.code)
			require.Regexp(w, "aggregate, or bucket:N|does not take", wrong.err)
		}
	})
}
