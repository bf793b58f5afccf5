package projector_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// mortal runs projectors of a shape, each in the place of the one before. An event of the type
// Fatal ends its process: the projection reports it and does not return from it, and the test then
// kills the projector.
type mortal struct {
	*world.World
	shape shape
	grow  time.Duration // how long the process lives on
	met   chan string   // the aggregates of such events
	over  chan struct{}
	ended int // projectors
}

func (m *mortal) start() *world.Projector {
	s := m.shape
	s.project = before(s.project, func(e projection.Event) error {
		if e.Type == "Fatal" {
			time.Sleep(m.grow)
			select {
			case m.met <- e.Aggregate:
			case <-m.over:
			}
			<-m.over
		}
		return nil
	})
	return m.StartProjector(func(c *projector.Config, o *projector.Options) {
		s.settings(c, o)
		o.Instance = "the-replica"
	})
}

// run replaces projectors whose process ends, until one has run for a minute, and returns that one.
func (m *mortal) run() *world.Projector {
	for p := m.start(); ; p = m.start() {
		select {
		case <-m.met:
			m.ended++
			require.Less(m, m.ended, 10, "projectors end again and again")
			p.Kill()
		case <-time.After(time.Minute):
			return p
		}
	}
}

func eachMortal(t *testing.T, f func(m *mortal)) {
	t.Helper()
	eachShape(t, func(w *world.World, s shape) {
		m := &mortal{World: w, shape: s, met: make(chan string), over: make(chan struct{})}
		defer close(m.over)
		f(m)
	})
}

// G5: an event whose projection ends the process is found, its aggregate is parked, and neither
// ends a process again; the aggregates beside it, in its session and in others, are applied. Once
// the projection is right, a replay applies everything.
func TestG5AnEventThatEndsItsProcessParksItsAggregate(t *testing.T) {
	for name, test := range map[string]struct {
		key   envelope.SessionKey
		grow  time.Duration
		ended int
	}{
		"at once, in a session of its own": {ended: 4}, // one unseen, one recorded, two alone
		"at once, in a shared session":     {key: envelope.Buckets(1), ended: 4},
		"in 20 s, in a shared session":     {key: envelope.Buckets(1), grow: 20 * time.Second, ended: 2}, // both recorded alone
	} {
		t.Run(name, func(t *testing.T) {
			eachMortal(t, func(m *mortal) {
				m.grow = test.grow
				in := func(changes ...envelope.Change) {
					publish(m.World, inSessions(test.key, changes...)...)
				}
				in(event("bad", 1, "T"), event("bad", 2, "Fatal"), event("bad", 3, "T"))
				for n := range 20 {
					name := fmt.Sprint("good-", n)
					in(event(name, 1, "T"), event(name, 2, "T"), event(name, 3, "T"))
				}
				p := m.run()
				require.Equal(m, test.ended, m.ended)
				m.Completed(61)
				require.Equal(m, []string{"bad/2 ProcessEnded", "bad/3 AggregateParked"}, deadLetters(m.World))
				for n := range 20 {
					requireRight(m.World, m.shape, fmt.Sprint("good-", n), 3)
				}

				in(event("bad", 4, "Fatal"), event("good-0", 4, "T"))
				m.Completed(62)
				deadLettered(m.World, 3)
				select {
				case <-m.met:
					m.Fatal("the projection was given an event of the parked aggregate")
				default:
				}
				p.MustEnd()
				require.Equal(m, 0, operate(m.World, m.shape, "parked", "replay", "bad").Code, "with a projection that returns")
				requireRight(m.World, m.shape, "bad", 4)

				p = m.start()
				in(event("bad", 5, "T"))
				m.Completed(63)
				require.Empty(m, suspects(m.World, m.shape), "what was applied is suspect no longer")
				p.MustEnd()
				require.Zero(m, m.Bus.Stats(world.SubscriptionPath).Redelivered, "no delivery count shows that a process ended")
			})
		})
	}
}

// suspects returns what the read model holds about events that were in hand when a process ended.
func suspects(w *world.World, s shape) (all []bson.Raw) {
	cursor, err := w.Client.Database(world.ReadModel).Collection(s.project.Name()+"_processes").Find(w.Context(), bson.D{{Key: "kind", Value: "suspect"}})
	require.NoError(w, err)
	require.NoError(w, cursor.All(w.Context(), &all))
	return all
}

// G5: projectors that are killed again and again, with events in hand and while they find out which
// one may have ended a process, park nothing and lose nothing.
func TestG5ProjectorsThatAreKilledCondemnNoEvent(t *testing.T) {
	eachMortal(t, func(m *mortal) {
		const aggregates, versions = 20, 5
		m.DelayMongo(100_000, 3*time.Millisecond, "insert", "update", "delete", "find", "bulkWrite", "commitTransaction")
		for version := 1; version <= versions; version++ {
			for n := range aggregates {
				publish(m.World, event(fmt.Sprint("good-", n), version, "T"))
			}
		}
		for n := range 40 { // at ever other moments
			p := m.start()
			m.Pass(20*time.Millisecond + time.Duration(n)*7*time.Millisecond)
			p.Kill()
		}
		p := m.start()
		m.Completed(aggregates * versions)
		for n := range aggregates {
			requireRight(m.World, m.shape, fmt.Sprint("good-", n), versions)
		}
		require.Zero(m, m.Bus.Stats(world.SubscriptionPath).DeadLettered)
		require.Empty(m, suspects(m.World, m.shape))
		p.MustEnd()
	})
}
