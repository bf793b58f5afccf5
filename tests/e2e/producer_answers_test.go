package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// lanes are several, with batches of one event, so that others have sends under way on the link.
func lanes(c *producer.Config, _ *producer.Options) {
	c.PublishLanes, c.PublishLanesMax, c.BatchMessages = 4, 4, 1
}

// G1: what the broker releases or modifies it has not stored. It is sent again, before anything later of its sessions.
func TestG1OnlyAcceptedIsAnAcknowledgement(t *testing.T) {
	for name, outcome := range map[string]servicebus.Outcome{"released": servicebus.Released, "modified": servicebus.Modified} {
		t.Run(name, func(t *testing.T) {
			inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
				a := w.start("a", lanes)
				w.leads("a")
				w.bus.AnswerSends(3, servicebus.Answer{Outcome: outcome})
				w.insertMany(40, 4)
				w.published()
				w.eventually("all is acknowledged", func() bool { return w.checkpoint().Published == 40 })
				require.Equal(w, 40, w.bus.Stats(topic).Accepted)
				w.judge()
				a.end()
			})
		})
	}
}

// G1: a link that the broker ends is replaced, whatever it says while it ends it, and what was under way there is sent again.
func TestG1ALinkThatIsDetachedIsReplaced(t *testing.T) {
	for _, condition := range []string{
		"com.microsoft:server-busy", "amqp:resource-limit-exceeded", "amqp:link:detach-forced", "amqp:link:message-size-exceeded",
		"amqp:not-allowed", "amqp:internal-error", "com.microsoft:timeout",
	} {
		t.Run(condition, func(t *testing.T) {
			inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
				a := w.start("a", lanes)
				w.leads("a")
				w.insertMany(10, 4)
				w.published()
				w.bus.AnswerSends(1, servicebus.Answer{Detach: true, Condition: condition})
				w.insertMany(40, 4)
				detached := time.Now()
				w.published()
				require.Less(w, time.Since(detached), 10*time.Second)
				w.eventually("all is acknowledged", func() bool { return w.checkpoint().Published == 50 })
				require.EqualValues(w, 1, w.checkpoint().Epoch)
				w.judge()
				a.end()
			})
		})
	}
}

// G6: what the broker will never take ends the stream, with its reason, under every condition that says so.
func TestG6EveryRefusalForGoodIsRecognised(t *testing.T) {
	for _, condition := range []string{
		"amqp:not-allowed", "amqp:not-implemented", "amqp:invalid-field", "amqp:decode-error",
		"com.microsoft:argument-error", "com.microsoft:argument-out-of-range",
	} {
		t.Run(condition, func(t *testing.T) {
			inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
				a := w.start("a", lanes)
				w.leads("a")
				w.bus.AnswerSends(1000, servicebus.Answer{Outcome: servicebus.Rejected, Condition: condition})
				w.insertMany(10, 4)
				err := <-a.done
				require.ErrorContains(w, err, "refused by Service Bus for good")
				require.ErrorContains(w, err, condition)
				require.Zero(w, w.checkpoint().Published)
			})
		})
	}
}
