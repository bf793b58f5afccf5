package projector_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// maxDeliveries is the maximum of every world's subscription.
const maxDeliveries = 3

// versionless returns an event whose change carries no version.
func versionless(aggregate string, n int) envelope.Change {
	c := event(aggregate, n, "T")
	c.Version = 0
	return c
}

// loseDeliveries receives what waits in a session n times, and lets the lock expire each time, as a
// projector that dies does.
func loseDeliveries(w *world.World, session string, n int) {
	w.Helper()
	for range n {
		receiver, err := w.BusClient.AcceptSessionForSubscription(w.Context(), world.Topic, world.Subscription, session, nil)
		require.NoError(w, err)
		messages, err := receiver.ReceiveMessages(w.Context(), 1, nil)
		require.NoError(w, err)
		require.Len(w, messages, 1)
		w.Pass(world.LockDuration + time.Second)
		_ = receiver.Close(w.Context()) // its lock is lost
	}
}

// deadly returns a projection with an event, of a version, that ends its projector, for example by
// exhausting its memory.
func deadly(p projection.Projection, version int64, dead *atomic.Bool) projection.Projection {
	return before(p, func(e projection.Event) error {
		if e.Version != version {
			return nil
		}
		dead.Store(true)
		return errors.New("out of memory")
	})
}

// replace starts another projector whenever an event ended the one that runs, until that event is
// over.
func replace(w *world.World, p *world.Projector, settings func(*projector.Config, *projector.Options), dead *atomic.Bool, over func() bool) {
	w.Helper()
	either := func() bool { return dead.Load() || over() }
	for w.Eventually("it dies, or gives the event up", either); dead.Load(); w.Eventually("it dies, or gives the event up", either) {
		dies(w, p)
		dead.Store(false)
		p = w.StartProjector(settings)
	}
}

// dies ends a projector as its machine's end does.
func dies(w *world.World, p *world.Projector) {
	p.BusPlug.Stall()
	p.MongoPlug.Pull()
	w.Pass(world.LockDuration + time.Second)
	p.Kill()
}

// G1, G2, G5: the broker does not dead-letter an event that ends every projector that handles it,
// and later events do not overtake it: its aggregate is parked before.
func TestG1G2G5AnEventThatUsesUpItsDeliveriesIsNotOvertaken(t *testing.T) {
	for source, set := range map[string]func(*world.World) func(*projector.Config, *projector.Options){
		"by the setting": func(*world.World) func(*projector.Config, *projector.Options) {
			return func(c *projector.Config, _ *projector.Options) { c.MaxDeliveries = maxDeliveries }
		},
		"by the entity": func(w *world.World) func(*projector.Config, *projector.Options) {
			slow := late{w.Administered().Transport}
			return func(_ *projector.Config, o *projector.Options) {
				o.Administration = &azcore.ClientOptions{Transport: slow}
			}
		},
	} {
		t.Run(source, func(t *testing.T) { usesUpItsDeliveries(t, set) })
	}
}

// late is an administration that answers more slowly than a message is handled.
type late struct{ transport policy.Transporter }

func (l late) Do(r *http.Request) (*http.Response, error) {
	if err := retry.Sleep(r.Context(), 3*time.Second); err != nil {
		return nil, err
	}
	return l.transport.Do(r)
}

func usesUpItsDeliveries(t *testing.T, set func(*world.World) func(*projector.Config, *projector.Options)) {
	eachShape(t, func(w *world.World, s shape) {
		set := set(w)
		var dead atomic.Bool
		settings := func(c *projector.Config, o *projector.Options) {
			s.settings(c, o)
			set(c, o)
			runs(deadly(s.project, 2, &dead))(c, o)
		}
		p := w.StartProjector(settings)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		publish(w, event("a", 2, "T"))
		replace(w, p, settings, &dead, func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered > 0 })
		publish(w, event("a", 3, "T"), event("b", 1, "T"))
		w.Completed(2)
		deadLettered(w, 2)
		require.Equal(w, 1, s.applied(w, "a"))
		require.Equal(w, []string{"a/2 DeliveriesUsedUp", "a/3 AggregateParked"}, deadLetters(w))
		require.Contains(w, parked(w, s.guards, "a").Description, "the event was delivered 2 times, and the broker takes it out of its order after 3")

		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		requireRight(w, s, "a", 3)
		require.Empty(w, deadLetters(w))
	})
}

// G5: an event that ends its projector does so once if its aggregate is parked, and uses up no more
// deliveries of its neighbours.
func TestG5AnEventOfAParkedAggregateEndsOneProjectorAtMost(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		var dead atomic.Bool
		s.project = deadly(s.project, 3, &dead)
		s.adjust = func(c *projector.Config) { c.MaxDeliveries, c.WatchProcesses = 10, false }
		p := w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 2, "Poison"))
		deadLettered(w, 1)
		publish(w, event("a", 3, "T"))
		w.Eventually("it dies", dead.Load)
		dies(w, p)
		dead.Store(false)
		w.StartProjector(s.settings)
		deadLettered(w, 2)
		require.False(w, dead.Load(), "the projection was given the event again")
		require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked"}, deadLetters(w))
	})
}

// G1, G3: the effect is committed before the message is completed. An event that was applied, and
// could not be completed, is completed eventually, however often it was delivered, and has no
// second effect.
func TestG3AnAppliedEventThatUsesUpItsDeliveriesParksNothing(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		first := w.StartProjector(s.settings)
		w.DelayMongo(1, time.Second, "update")
		publish(w, event("a", 1, "T"))
		w.Eventually("it is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
		first.BusPlug.Stall()
		w.Eventually("it is applied", func() bool { return s.applied(w, "a") == 1 })
		w.Pass(world.LockDuration)
		first.Kill()
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Completed)
		s.adjust = func(c *projector.Config) { c.MaxDeliveries = maxDeliveries }
		p := w.StartProjector(s.settings)
		publish(w, event("a", 2, "T"))
		w.Completed(2)
		require.Equal(w, 1, p.MustEnd().Duplicates)
		requireRight(w, s, "a", 2)
	})
}

// G6: if every aggregate begins with version 1, a higher one that comes first is a gap: it heals,
// or parks its aggregate.
func TestG6AMissingFirstEventIsAGap(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		s.adjust = func(c *projector.Config) { c.VersionFirst = 1 }
		w.StartProjector(s.settings)
		publish(w, event("late", 2, "T"), event("lost", 2, "T"), event("lost", 3, "T"), event("right", 1, "T"), event("right", 2, "T"))
		w.Completed(2)
		publish(w, event("late", 1, "T"))
		w.Completed(4)
		requireRight(w, s, "late", 2)
		deadLettered(w, 2)
		require.Zero(w, s.applied(w, "lost"))
		require.Equal(w, []string{"lost/2 VersionGap", "lost/3 AggregateParked"}, deadLetters(w))
		require.Contains(w, parked(w, s.guards, "lost").Description, "nothing of its aggregate was applied, whose versions begin with 1")
		publish(w, event("right", 3, "T"))
		w.Completed(5)
		requireRight(w, s, "right", 3)
		require.Equal(w, 1, operate(w, s, "parked", "replay", "lost").Code, "the first event is still missing")
		require.Zero(w, s.applied(w, "lost"))
		publish(w, event("lost", 1, "T"))
		deadLettered(w, 3)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "lost").Code)
		requireRight(w, s, "lost", 3)
	})
}

// broker is the reason of a message that the broker itself dead-letters.
const broker = "MaxDeliveryCountExceeded"

// G1, G6: a message that the broker dead-lettered, and that later events overtook, does not count
// as applied because of its position: it is kept, and an operator decides.
func TestG1G6AnOvertakenEventIsKeptForAnOperator(t *testing.T) {
	for name, test := range map[string]struct {
		event   func(n int) envelope.Change
		applied int // events before the one that is overtaken
		letter  string
	}{
		"without a version":     {func(n int) envelope.Change { return versionless("a", n) }, 1, "a/0 "},
		"the aggregate's first": {func(n int) envelope.Change { return event("a", n, "T") }, 0, "a/1 "},
	} {
		eachShapeOf(t, name, func(w *world.World, s shape) {
			at := test.applied + 1
			p := w.StartProjector(s.settings)
			for n := range test.applied {
				publish(w, test.event(n+1))
			}
			w.Completed(test.applied)
			p.MustEnd()
			publish(w, test.event(at))
			loseDeliveries(w, "a", maxDeliveries)
			deadLettered(w, 1)
			w.StartProjector(s.settings)
			publish(w, test.event(at+1), test.event(at+2))
			w.Completed(test.applied + 2)
			before := guard(w, s.guards, "a")

			replay := exits(w, 1, operate(w, s, "parked", "replay", "--all"))
			require.Contains(w, replay.Out, "Overtaken")
			require.Equal(w, []string{test.letter + broker}, deadLetters(w), "the only copy is kept")
			require.Equal(w, "Overtaken", parked(w, s.guards, "a").Reason)
			show := operate(w, s, "parked", "show", "a")
			require.Contains(w, show.Out, "1 event that the broker dead-lettered; later ones were applied")
			require.Equal(w, 1, operate(w, s, "parked", "replay", "a").Code, "nothing has changed")
			require.Equal(w, []string{test.letter + broker}, deadLetters(w))

			publish(w, test.event(at+3))
			deadLettered(w, 2)
			require.Equal(w, 0, operate(w, s, "parked", "drop", "a", "--yes").Code)
			require.Empty(w, deadLetters(w))
			require.Empty(w, parked(w, s.guards, "a"))
			after := guard(w, s.guards, "a")
			require.Less(w, before.Lookup("position").StringValue(), after.Lookup("position").StringValue(), "what came meanwhile is applied")
		})
	}
}

// G6: an operator who has seen which and how many events were overtaken drops them together, and
// nothing else.
func TestG6OvertakenEventsAreGivenUpTogetherByTheirNumber(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		publish(w, versionless("a", 1), versionless("b", 1), event("c", 1, "Poison"), event("c", 2, "T"))
		w.Completed(2)
		deadLettered(w, 2)
		p.MustEnd()
		publish(w, versionless("a", 2), versionless("a", 3), versionless("b", 2))
		loseDeliveries(w, "a", maxDeliveries)
		loseDeliveries(w, "a", maxDeliveries)
		loseDeliveries(w, "b", maxDeliveries)
		deadLettered(w, 5)
		w.StartProjector(s.settings)
		publish(w, versionless("a", 4), versionless("b", 3))
		w.Completed(4)
		require.Equal(w, "no event of a parked aggregate was overtaken\n", operate(w, s, "parked", "drop", "--overtaken").Out)
		require.Equal(w, 1, operate(w, s, "parked", "replay", "--all").Code)
		publish(w, versionless("a", 5))
		deadLettered(w, 6)
		before := deadLetters(w)

		look := exits(w, 0, operate(w, s, "parked", "drop", "--overtaken"))
		require.Regexp(w, `AGGREGATE +POSITION +VERSION +REASON\na +8\S+02 +unknown +`+broker+`\na +8\S+03 +unknown +`+broker+`\nb +8\S+02 +unknown +`+broker, look.Out)
		require.Contains(w, look.Out, "3 events of 2 aggregates: the broker dead-lettered them")
		require.Contains(w, look.Out, "projector parked drop --overtaken --count 3 --yes\n")
		for code, wrong := range map[int][]string{
			1: {"--overtaken", "--count", "2", "--yes"},
			2: {"--overtaken", "--yes"},
		} {
			refused := operate(w, s, append([]string{"parked", "drop"}, wrong...)...)
			require.Equal(w, code, refused.Code)
			require.Empty(w, refused.Out)
		}
		require.Equal(w, 2, operate(w, s, "parked", "drop", "a", "--overtaken", "--count", "3", "--yes").Code)
		require.Equal(w, 2, operate(w, s, "parked", "drop", "a", "--count", "3", "--yes").Code)
		require.Equal(w, before, deadLetters(w), "nothing was done")

		dropped := exits(w, 0, operate(w, s, "parked", "drop", "--overtaken", "--count", "3", "--yes"))
		require.Contains(w, dropped.Out, "gave up 3 of 3 events\n")
		require.Contains(w, dropped.Out, "a: 1 event applied; it is not parked\n", "what came meanwhile")
		require.Contains(w, dropped.Out, "b: 0 events applied; it is not parked\n")
		require.Equal(w, []string{"c/1 ProjectionFailed", "c/2 AggregateParked"}, deadLetters(w))
		require.NotEmpty(w, parked(w, s.guards, "c"), "which is of another kind")
		require.Equal(w, event("a", 5, "").Position, guard(w, s.guards, "a").Lookup("position").StringValue())
		require.Empty(w, parked(w, s.guards, "a"))
		require.Empty(w, parked(w, s.guards, "b"))
	})
}

// G6: an event whose version proves that it was applied is not among those that were overtaken,
// even if its aggregate is parked.
func TestG6AnAppliedEventIsNotShownAsOvertaken(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		w.DelayMongo(2, time.Second, "update")
		publish(w, event("a", 1, "T"))
		w.Eventually("it is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked == 1 })
		p.BusPlug.Stall()
		w.Eventually("it is applied", func() bool { return guard(w, s.guards, "a") != nil })
		w.Pass(world.LockDuration)
		p.Kill()
		loseDeliveries(w, "a", maxDeliveries-1)
		deadLettered(w, 1)
		w.StartProjector(s.settings)
		publish(w, event("a", 2, "T"), event("a", 3, "Poison"))
		deadLettered(w, 2)
		require.NotEmpty(w, parked(w, s.guards, "a"))
		require.Equal(w, "no event of a parked aggregate was overtaken\n", operate(w, s, "parked", "drop", "--overtaken").Out)
	})
}

// G1, G2: a message that the broker dead-lettered, and that nothing has overtaken yet, is applied
// by a replay, in its place.
func TestG1G2AReplayAppliesWhatTheBrokerDeadLettered(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		publish(w, versionless("a", 1))
		w.Completed(1)
		p.MustEnd()
		publish(w, versionless("a", 2))
		loseDeliveries(w, "a", maxDeliveries)
		deadLettered(w, 1)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "--all").Code)
		require.Empty(w, deadLetters(w))
		require.Equal(w, event("a", 2, "").Position, guard(w, s.guards, "a").Lookup("position").StringValue())
		require.Empty(w, parked(w, s.guards, "a"))
	})
}

// G3: a message that was applied and dead-lettered by the broker anyway is recognised, by its
// version or because it was the last.
func TestG3AReplayRecognisesWhatWasAppliedBeforeTheBrokerDeadLetteredIt(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		w.DelayMongo(2, time.Second, "update")
		publish(w, event("a", 1, "T"), event("a", 2, "T"))
		publish(w, versionless("b", 1))
		w.Eventually("they are in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked == 3 })
		p.BusPlug.Stall()
		w.Eventually("they are applied", func() bool {
			return guard(w, s.guards, "b") != nil && guard(w, s.guards, "a") != nil
		})
		w.Pass(world.LockDuration)
		p.Kill()
		loseDeliveries(w, "a", maxDeliveries-1)
		loseDeliveries(w, "a", maxDeliveries-1) // the other message of the session
		loseDeliveries(w, "b", maxDeliveries-1)
		deadLettered(w, 3)
		replay := exits(w, 0, operate(w, s, "parked", "replay", "--all"))
		require.Contains(w, replay.Out, "removed 3 of 3")
		require.Equal(w, 2, s.applied(w, "a"))
		require.Empty(w, parked(w, s.guards, "a"))
		require.Empty(w, deadLetters(w))
	})
}
