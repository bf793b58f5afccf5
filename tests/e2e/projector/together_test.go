package projector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	drivererror "go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The tests of this file concern batches with several aggregates of a projection with a record of
// positions: they are written in one transaction, and the outcome of one aggregate must not affect
// another.

// together returns the shape of such a batch.
func together() shape { return shapes()[1] }

// total returns what all aggregates together have added to one document.
func total(w *world.World) int {
	w.Helper()
	events, _ := read(w, "totals", "all").Lookup("events").AsInt64OK()
	return int(events)
}

// commits counts the transactions that a projector commits, and those that conflicted.
type commits struct{ begun, conflicts atomic.Int64 }

func (c *commits) watch(settings func(*projector.Config, *projector.Options)) func(*projector.Config, *projector.Options) {
	return monitored(settings, &mongoevent.CommandMonitor{
		Started: func(_ context.Context, e *mongoevent.CommandStartedEvent) {
			if e.CommandName == "commitTransaction" {
				c.begun.Add(1)
			}
		},
		Failed: func(_ context.Context, e *mongoevent.CommandFailedEvent) {
			if refused, ok := errors.AsType[drivererror.Error](e.Failure); ok && refused.Code == 112 { // WriteConflict
				c.conflicts.Add(1)
			}
		},
	})
}

// G1, G2, G3: the events of several aggregates that arrive together are committed together, and
// each has its effect once, in order.
func TestG1G2G3AggregatesOfABatchAreCommittedTogether(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s, counted := together(), &commits{}
		publishTogether(w, rounds(10, 1, 3)...)
		p := w.StartProjector(counted.watch(s.settings))
		w.Completed(30)
		end := p.MustEnd()
		require.Equal(w, 30, end.Applied)
		for a := range 10 {
			name := fmt.Sprint("a", a)
			requireRight(w, s, name, 3)
			require.Equal(w, event(name, 3, "").Position, guard(w, s.guards, name).Lookup("position").StringValue())
			require.EqualValues(w, 3, guard(w, s.guards, name).Lookup("version").AsInt64())
		}
		require.Equal(w, 30, total(w))
		require.EqualValues(w, 1, counted.begun.Load())
	})
}

// G1, G3, G5: a guard that does not match, in the middle of a batch, affects only its own
// aggregate.
func TestG1G3G5AGuardThatDoesNotMatchDecidesForNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		before, of envelope.Change // the existing events of the aggregate b, and those in the middle of the batch
		duplicates int
		letter     string
		applied    int // of b, at the end
	}{
		"it is applied":                  {event("b", 1, "T"), event("b", 1, "T"), 1, "", 1},
		"its aggregate is parked":        {event("b", 1, "Poison"), event("b", 2, "T"), 0, "b/2 AggregateParked", 0},
		"a version before it is missing": {event("b", 1, "T"), event("b", 3, "T"), 0, "b/3 VersionGap", 1},
	} {
		subtest(t, name, func(w *world.World) {
			s := together()
			publishTogether(w, test.before)
			first := w.StartProjector(s.settings)
			w.Eventually("it is settled", func() bool {
				stats := w.Bus.Stats(world.SubscriptionPath)
				return stats.Completed+stats.DeadLettered == 1
			})
			first.MustEnd()
			before := w.Bus.Stats(world.SubscriptionPath)
			w.Pass(time.Minute) // the broker forgets the message ids

			publishTogether(w, event("a", 1, "T"), event("c", 1, "T"), test.of, event("d", 1, "T"), event("a", 2, "T"))
			second := w.StartProjector(s.settings)
			w.Completed(before.Completed + 4)
			w.Eventually("all is settled", func() bool {
				stats := w.Bus.Stats(world.SubscriptionPath)
				return stats.Completed+stats.DeadLettered == 6
			})
			end := second.MustEnd()
			require.Equal(w, 4, end.Applied)
			require.Equal(w, test.duplicates, end.Duplicates)
			requireRight(w, s, "a", 2)
			requireRight(w, s, "c", 1)
			requireRight(w, s, "d", 1)
			require.Equal(w, test.applied, s.applied(w, "b"))
			require.Equal(w, 4+test.applied, total(w))
			letters := deadLetters(w)
			if test.letter == "" {
				require.Empty(w, letters)
			} else {
				require.Equal(w, test.letter, letters[len(letters)-1])
			}
		})
	}
}

// G1, G3, G5: a permanently refused write in the middle of a batch parks its own aggregate, and
// nothing of any other.
func TestG1G3G5ARefusedWriteInABatchParksNoOther(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := together()
		require.NoError(w, w.Client.Database(world.ReadModel).CreateCollection(w.Context(), "lines",
			options.CreateCollection().SetValidator(bson.D{{Key: "type", Value: bson.D{{Key: "$ne", Value: "Bad"}}}})))
		publishTogether(w, event("a", 1, "T"), event("b", 1, "T"), event("c", 1, "T"), event("b", 2, "Bad"), event("d", 1, "T"), event("b", 3, "T"))
		p := w.StartProjector(s.settings)
		w.Completed(4)
		deadLettered(w, 2)
		end := p.MustEnd()
		require.Equal(w, 4, end.Applied)
		require.Equal(w, []string{"b/2 WriteRefused", "b/3 AggregateParked"}, deadLetters(w))
		for _, name := range []string{"a", "c", "d"} {
			requireRight(w, s, name, 1)
		}
		require.Equal(w, 1, s.applied(w, "b"))
		require.Equal(w, messageID(event("b", 2, "")), parked(w, s.guards, "b").MessageID)
		require.Equal(w, 4, total(w))
	})
}

// G1, G3: a projector that is killed anywhere while it writes several aggregates leaves none of
// them half done.
func TestG1G3ProjectorKilledAnywhereInABatch(t *testing.T) {
	killedAnywhere(t, 2, 7, func(w *world.World, n int) (finished bool) {
		s := together()
		publishTogether(w, event("a", 1, "T"), event("b", 1, "T"), event("a", 2, "T"), event("c", 1, "T"))
		first := w.StartProjector(s.settings)
		kill := world.LayFuse(n, first.BusPlug, first.MongoPlug)
		done := func() bool { return w.Bus.Stats(world.SubscriptionPath).Completed == 4 }
		w.Eventually("it is killed, or has finished", func() bool { return kill.HasBlown() || done() })
		finished = !kill.HasBlown()
		first.Kill()
		w.StartProjector(s.settings)
		w.Eventually("everything is settled", done)
		require.Equal(w, []int{2, 1, 1}, []int{s.applied(w, "a"), s.applied(w, "b"), s.applied(w, "c")}, "after %d writes", n)
		require.Equal(w, 4, total(w), "after %d writes", n)
		return finished
	})
}

// G1, G3: the transaction of a batch commits all of it: a projector that dies at the moment of the
// commit has nothing left to write, and the next one recognises every event as applied.
func TestG1G3TheCommitOfABatchHoldsItsEffects(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s, killed := together(), &atomic.Bool{}
		var first *world.Projector
		first = w.StartProjector(monitored(s.settings, &mongoevent.CommandMonitor{
			Succeeded: func(_ context.Context, e *mongoevent.CommandSucceededEvent) {
				if e.CommandName == "commitTransaction" && killed.CompareAndSwap(false, true) { // before the projector continues
					first.BusPlug.Pull()
					first.MongoPlug.Pull()
				}
			},
		}))
		publishTogether(w, event("a", 1, "T"), event("b", 1, "T"), event("a", 2, "T"), event("c", 1, "T"))
		w.Eventually("it is gone", killed.Load)
		first.Kill()
		right := func() {
			w.Helper()
			require.Equal(w, []int{2, 1, 1}, []int{s.applied(w, "a"), s.applied(w, "b"), s.applied(w, "c")})
			require.Equal(w, 4, total(w))
		}
		right()
		second := w.StartProjector(s.settings)
		w.Completed(4)
		end := second.MustEnd()
		require.Equal(w, []int{0, 4}, []int{end.Applied, end.Duplicates})
		right()
	})
}

// G3, G4: a projector that loses its session's lock while it commits several aggregates does no
// harm, whether the commit is late or never happens.
func TestG3G4ALockThatIsLostWhileABatchIsCommitted(t *testing.T) {
	for name, late := range map[string]time.Duration{"after the lock": world.LockDuration + 5*time.Second, "after the transaction": 10 * time.Minute} {
		subtest(t, name, func(w *world.World) {
			s := together()
			s.adjust = func(c *projector.Config) { c.ApplyTimeout = 20 * time.Minute }
			w.DelayMongo(1, late, "commitTransaction")
			publishTogether(w, event("a", 1, "T"), event("b", 1, "T"), event("c", 1, "T"))
			counted := &commits{}
			first := w.StartProjector(counted.watch(s.settings))
			w.Eventually("the commit is under way", func() bool { return counted.begun.Load() > 0 })
			first.BusPlug.Pull()
			w.Eventually("the handler is cancelled", func() bool { return strings.Contains(first.Log.Text(), "session lock lost") })
			w.StartProjector(together().settings)
			w.Completed(3)
			w.Pass(15 * time.Minute)
			require.Equal(w, 3, total(w))
			for _, name := range []string{"a", "b", "c"} {
				requireRight(w, s, name, 1)
			}
		})
	}
}

// G2, G3: several replicas write batches of many aggregates that all conflict in one document,
// while connections break: each event's share is counted once.
func TestG2G3BatchesOfReplicasThatMeetInOneDocumentAddUp(t *testing.T) {
	inRealTime(t, time.Millisecond, func(w *world.World) {
		const aggregates, events, buckets = 24, 10, 6
		s, counted := together(), &commits{}
		for range 2 {
			w.StartProjector(counted.watch(s.settings))
		}
		w.DelayMongo(20, 20*time.Millisecond, "commitTransaction") // long transactions conflict for certain
		for n := 1; n <= events; n++ {
			publish(w, inSessions(envelope.Buckets(buckets), rounds(aggregates, n, n)...)...)
			if n%4 == 0 {
				w.Mongo.DropConnections()
			}
		}
		w.Completed(aggregates * events)
		for _, p := range w.Projectors {
			end := p.MustEnd()
			require.Zero(w, end.DeadLettered)
		}
		for a := range aggregates {
			requireRight(w, s, fmt.Sprint("a", a), events)
		}
		require.Equal(w, aggregates*events, total(w))
		require.NotZero(w, counted.conflicts.Load(), "no two transactions met: the test shows nothing")
	})
}
