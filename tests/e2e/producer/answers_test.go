package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// lanes sets several lanes with batches of one event, so that other sends are in flight on the
// link.
func lanes(c *producer.Config, _ *producer.Options) {
	c.PublishLanes, c.PublishLanesMax, c.BatchMessages = 4, 4, 1
}

// sendsAgain has the broker answer some sends like this, and requires that the same leader
// publishes everything.
func sendsAgain(w *world.World, times int, answer servicebus.Answer) {
	w.Helper()
	a := startAndPublish(w, "a", lanes, 10, 4)
	w.Bus.AnswerSends(times, answer)
	w.InsertMany(40, 4)
	w.Published()
	checkpointed(w, 50)
	require.EqualValues(w, 1, w.Checkpoint().Epoch)
	a.End()
}

// G1: a message that the broker releases or modifies is not stored. It is sent again, before
// anything later of its session.
func TestG1OnlyAcceptedIsAnAcknowledgement(t *testing.T) {
	for name, outcome := range map[string]servicebus.Outcome{"released": servicebus.Released, "modified": servicebus.Modified} {
		subtest(t, name, world.Options{}, func(w *world.World) {
			sendsAgain(w, 3, servicebus.Answer{Outcome: outcome})
			require.Equal(w, 50, w.Bus.Stats(world.Topic).Accepted)
			w.Judge()
		})
	}
}

// sessionEnds is the end of a link with its AMQP session, in [TestG1ALinkThatIsDetachedIsReplaced].
const sessionEnds = "the session ends"

// G1: a link that the broker detaches is replaced, whatever the condition, and the sends in flight
// on it are repeated.
func TestG1ALinkThatIsDetachedIsReplaced(t *testing.T) {
	for _, condition := range []string{
		"com.microsoft:server-busy", "amqp:resource-limit-exceeded", "amqp:link:detach-forced", "amqp:link:message-size-exceeded",
		"amqp:not-allowed", "amqp:internal-error", "com.microsoft:timeout", sessionEnds,
	} {
		subtest(t, condition, world.Options{}, func(w *world.World) {
			a := startAndPublish(w, "a", lanes, 10, 4)
			if condition == sessionEnds {
				require.Positive(w, w.Bus.EndSessions(world.Topic, "amqp:internal-error", 100))
			} else {
				w.Bus.AnswerSends(1, servicebus.Answer{Detach: true, Condition: condition})
			}
			w.InsertMany(40, 4)
			detached := time.Now()
			w.Published()
			require.Less(w, time.Since(detached), 10*time.Second)
			checkpointed(w, 50)
			require.EqualValues(w, 1, w.Checkpoint().Epoch)
			w.Judge()
			a.End()
		})
	}
}

// G6: a message that the broker permanently refuses stops the stream, with the broker's reason, for
// every such condition.
func TestG6EveryRefusalForGoodIsRecognised(t *testing.T) {
	for _, condition := range []string{
		"amqp:not-allowed", "amqp:not-implemented", "amqp:invalid-field", "amqp:decode-error",
		"com.microsoft:argument-error", "com.microsoft:argument-out-of-range",
	} {
		subtest(t, condition, world.Options{}, func(w *world.World) {
			a := startLeader(w, "a", lanes)
			w.Bus.AnswerSends(1000, servicebus.Answer{Outcome: servicebus.Rejected, Condition: condition})
			w.InsertMany(10, 4)
			err := a.Failed()
			require.ErrorContains(w, err, "permanently refused by Service Bus")
			require.ErrorContains(w, err, condition)
			require.Zero(w, w.Checkpoint().Published)
		})
	}
}

// G1: a rejection for a transient reason ends nothing: the same leader sends the batch again.
func TestG1ARejectionThatPassesIsRetried(t *testing.T) {
	for _, condition := range []string{"com.microsoft:timeout", "com.microsoft:operation-cancelled", "com.microsoft:server-busy", "amqp:internal-error"} {
		subtest(t, condition, world.Options{}, func(w *world.World) {
			sendsAgain(w, 10, servicebus.Answer{Outcome: servicebus.Rejected, Condition: condition})
		})
	}
}
