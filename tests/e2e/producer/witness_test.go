package producer_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func parking(c *producer.Config, _ *producer.Options) { c.OnRefused = "park" }

// versionsOf selects the events that Service Bus refuses.
func versionsOf(versions ...int64) func(servicebus.Accepted) bool {
	return func(a servicebus.Accepted) bool {
		version, _ := a.Properties[envelope.PropVersion].(int64)
		return slices.Contains(versions, version)
	}
}

// keptVersions returns the versions of the parked messages.
func keptVersions(w *world.World) (versions []int64) {
	for _, r := range keptRecords(w) {
		versions = append(versions, r.Version)
	}
	return versions
}

// keptRecords returns the records of the parked messages.
func keptRecords(w *world.World) (records []record) {
	for _, blob := range blobNames(w, "claim-checks") {
		if strings.HasSuffix(blob, ".json") {
			var kept record
			require.NoError(w, json.Unmarshal([]byte(blobContent(w, "claim-checks", blob)), &kept))
			records = append(records, kept)
		}
	}
	return records
}

// G6: if all events belong to one session, nothing else is accepted while a message of it is
// suspect. Then the message before it is sent once more, to find out whether the entity accepts
// anything. So the refused messages are found and parked one after the other, and nothing stops.
func TestG6RefusedMessagesInARowOfAQuietStreamAreParked(t *testing.T) {
	for name, answer := range refusals {
		subtest(t, name, world.Options{}, func(w *world.World) {
			a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) { c.OnRefused, c.RefusedAfter = "park", time.Minute })
			w.Bus.AnswerSendsOf(versionsOf(4, 5), answer)
			w.InsertMany(10, 1)
			checkpointed(w, 8)
			require.EqualValues(w, 1, w.Checkpoint().Epoch)
			a.End()
			require.Equal(w, upTo(10, 4, 5), arrived(w)["a0"], "what is sent once more is known to the broker")
			require.ElementsMatch(w, []int64{4, 5}, keptVersions(w))
		})
	}
}

// G6: with ON_REFUSED=fail the same probe identifies the message, so the stream ends with its name
// instead of starting over repeatedly.
func TestG6AQuietStreamNamesTheMessageThatEndsItsLink(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		w.Bus.AnswerSendsOf(versionsOf(4), refusals["by ending the link"])
		w.InsertMany(10, 1)
		require.ErrorContains(w, a.Failed(), `insert of aggregate "a0" at `)
		require.EqualValues(w, 3, w.Checkpoint().Published)
	})
}

// G6: what was accepted before proves nothing about now: if an entity begins to refuse everything,
// nothing is parked.
func TestG6NothingIsParkedOnceNothingIsAccepted(t *testing.T) {
	for name, answer := range map[string]servicebus.Answer{"rejected": refusals["for good"], "link ended": refusals["by ending the link"]} {
		subtest(t, name, world.Options{}, func(w *world.World) {
			a := startLeader(w, "a", parking)
			w.InsertMany(40, 4)
			checkpointed(w, 40)
			end := w.Bus.AnswerSendsOf(func(servicebus.Accepted) bool { return true }, answer)
			w.InsertMany(40, 4)
			if name == "rejected" {
				require.ErrorContains(w, a.Failed(), "nothing else is accepted either")
				require.EqualValues(w, 40, w.Checkpoint().Published)
			} else {
				w.Eventually("another term begins", func() bool { return w.Checkpoint().Epoch > 1 })
				end()
				checkpointed(w, 80)
				a.End()
			}
			require.Empty(w, blobNames(w, "claim-checks"))
		})
	}
}

// G6: a message that is permanently refused first in a term waits for the other messages of its
// batch, which prove that the entity accepts messages.
func TestG6TheFirstMessageOfATermIsParkedWithTheProofOfItsBatch(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		w.Bus.AnswerSendsOf(func(m servicebus.Accepted) bool {
			return m.SessionID == "a0" && m.Properties[envelope.PropVersion] == int64(1)
		}, refusals["for good"])
		a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) {
			c.BatchScope, c.OnRefused, c.PublishLanes, c.PublishLanesMax = "mixed", "park", 1, 1
		})
		w.InsertMany(40, 4)
		checkpointed(w, 39)
		a.End()
		require.Equal(w, []int64{1}, keptVersions(w))
	})
}

// G6: everything except a refused message of a session that has sent nothing else is published, so
// nothing proves any more that Service Bus accepts messages. The leader probes until REFUSED_AFTER
// is over, instead of stepping down after STALL_AFTER and losing the evidence.
func TestG6ARefusedMessageIsParkedByTheLeaderThatHasPublishedAllElse(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		w.Bus.AnswerSendsOf(func(m servicebus.Accepted) bool { return m.SessionID == "a0" }, refusals["for an unlisted reason"])
		a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) {
			c.OnRefused, c.StallAfter, c.RefusedAfter = "park", 30*time.Second, 2*time.Minute
		})
		w.InsertMany(4, 4)
		checkpointed(w, 3)
		require.EqualValues(w, 1, w.Checkpoint().Epoch)
		a.End()
		require.Equal(w, []int64{1}, keptVersions(w))
	})
}
