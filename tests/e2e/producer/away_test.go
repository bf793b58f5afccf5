package producer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// passing are conditions that do not concern the message: a service that asks for a retry, a
// disabled entity, and an unlisted one.
var passing = map[string]servicebus.Answer{
	"internal error":           {Outcome: servicebus.Rejected, Condition: "amqp:internal-error"},
	"disabled":                 {Outcome: servicebus.Rejected, Condition: "com.microsoft:entity-disabled"},
	"internal error, detached": {Detach: true, Condition: "amqp:internal-error"},
	"unknown":                  {Outcome: servicebus.Rejected, Condition: "com.contoso:full-moon"},
}

func ofSessions(names ...string) func(servicebus.Accepted) bool {
	return func(m servicebus.Accepted) bool {
		return slices.Contains(names, m.SessionID)
	}
}

// G1, G6: sessions, or those of a partition, whose messages are refused for half a second to a
// minute, with a condition that does not concern the message, lose nothing and stop nothing,
// whatever ON_REFUSED is. They continue afterwards, and the other sessions continue in the
// meantime.
func TestG1G6UnavailableSessionsCondemnNoMessage(t *testing.T) {
	for name, answer := range passing {
		for _, policy := range []string{"park", "fail"} {
			for _, lasts := range []time.Duration{500 * time.Millisecond, 5 * time.Second, time.Minute} {
				subtest(t, fmt.Sprintf("%s %s %v", name, policy, lasts), world.Options{}, func(w *world.World) {
					a := startAndPublish(w, "a", func(c *producer.Config, _ *producer.Options) { c.OnRefused = policy }, 40, 8)
					back := w.Bus.AnswerSendsOf(ofSessions("a0", "a1", "new"), answer)
					began := time.Now()
					for time.Since(began) < lasts {
						for _, aggregate := range []string{"a0", "a1", "a2", "a3", "new"} {
							w.Insert(aggregate)
						}
						w.Pass(200 * time.Millisecond)
					}
					others := 0
					for _, m := range w.Took() {
						if m.SessionID == "a2" || m.SessionID == "a3" {
							others++
						}
					}
					require.GreaterOrEqual(w, others, 2*(w.Total()-40)/5-2, "the other sessions go on")
					back()
					w.Published()
					checkpointed(w, w.Total())
					require.EqualValues(w, 1, w.Checkpoint().Epoch)
					w.Judge()
					require.Empty(w, keptVersions(w))
					a.End()
				})
			}
		}
	}
}

// G6: a partition that is unavailable for longer than REFUSED_AFTER does not condemn a message:
// what its sessions sent before is refused as well. Of sessions that have sent nothing yet a few
// messages are parked; after that, the condition is reported and waited for.
func TestG6AnUnavailablePartitionParksFewMessages(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startAndPublish(w, "a", parking, 40, 8)
		away := func(m servicebus.Accepted) bool {
			return m.SessionID == "a0" || m.SessionID == "a1" || strings.HasPrefix(m.SessionID, "new")
		}
		back := w.Bus.AnswerSendsOf(away, passing["internal error"])
		for range 12 {
			w.Insert("a0")
			w.Insert("a1")
		}
		w.Pass(10 * time.Second)
		for n := range 12 {
			w.Insert(fmt.Sprintf("new%d", n))
		}
		for range 2 * 60 { // of 10 s each
			w.Insert("a2")
			w.Pass(10 * time.Second)
		}
		parked := len(keptVersions(w))
		require.LessOrEqual(w, parked, 3)
		for _, r := range keptRecords(w) {
			require.NotContains(w, []string{"a0", "a1"}, r.Aggregate, "what it sent before is refused as well")
		}
		require.Contains(w, a.Log.Text(), "no more are parked")
		back()
		checkpointed(w, w.Total()-parked)
		require.EqualValues(w, 1, w.Checkpoint().Epoch)
		a.End()
	})
}

// G6: an unlisted condition condemns a message after it has lasted for REFUSED_AFTER while other
// messages of the same session were accepted, and not before.
func TestG6AMessageIsRefusedForAnUnlistedReasonAfterAWhile(t *testing.T) {
	for _, policy := range []string{"park", "fail"} {
		subtest(t, policy, world.Options{}, func(w *world.World) {
			a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) { c.OnRefused, c.RefusedAfter = policy, 2*time.Minute })
			w.Bus.AnswerSendsOf(versionsOf(4), passing["unknown"])
			w.InsertMany(10, 1)
			checkpointed(w, 3)
			w.Pass(110 * time.Second)
			require.Empty(w, keptVersions(w))
			require.Empty(w, a.Done)
			require.EqualValues(w, 1, w.Checkpoint().Epoch)
			w.Pass(20 * time.Second)
			if policy == "fail" {
				require.ErrorContains(w, a.Failed(), `insert of aggregate "a0" at `)
				require.EqualValues(w, 3, w.Checkpoint().Published)
				return
			}
			checkpointed(w, 9)
			require.Equal(w, []int64{4}, keptVersions(w))
			a.End()
		})
	}
}

// G6: of a session all of whose messages are permanently refused a few are parked. Then that is
// reported, and the session waits while the others continue.
func TestG6ASessionThatIsRefusedForGoodIsNotEmptiedIntoTheContainer(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", parking)
		end := w.Bus.AnswerSendsOf(ofSessions("new"), refusals["for good"])
		w.InsertMany(40, 4)
		for range 20 {
			w.Insert("new")
		}
		for range 60 {
			w.Insert("a0")
			w.Pass(10 * time.Second)
		}
		parked := len(keptVersions(w))
		require.Equal(w, 5, parked)
		require.Contains(w, a.Log.Text(), "no more are parked")
		require.Empty(w, a.Done)
		end()
		checkpointed(w, w.Total()-parked)
		a.End()
	})
}
