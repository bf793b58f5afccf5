package projector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// troubled is a projection of one document per aggregate, in which the type of an event decides
// what goes wrong with it.
type troubled struct{ until chan struct{} }

func (troubled) Name() string       { return "troubled" }
func (troubled) Collection() string { return "troubled" }

func (p troubled) Project(e projection.Event) ([]projection.Write, error) {
	set := func(key string, value any) ([]projection.Write, error) {
		return []projection.Write{projection.Update("troubled", e.Aggregate, projection.Set(key, value))}, nil
	}
	switch e.Type {
	case "Poison":
		return nil, projection.Permanent(errors.New("no rule for it"))
	case "Unlisted":
		return nil, errors.New("a failure that is in no table")
	case "Endless":
		<-p.until
	case "Channel":
		return set("channel", make(chan int))
	case "Big":
		return set("big", strings.Repeat("x", 16<<20-300))
	case "Small":
		return set("small", strings.Repeat("x", 200))
	}
	return []projection.Write{projection.Update("troubled", e.Aggregate, projection.Inc("events", 1))}, nil
}

// contending is a projection of several documents, one of which all events of the type Shared write
// to.
var contending = documents{"contending", func(e projection.Event) ([]projection.Write, error) {
	writes := []projection.Write{projection.Update("troubled", e.Aggregate, projection.Inc("events", 1))}
	if e.Type == "Shared" {
		writes = append(writes, projection.Update("totals", "all", projection.Inc("events", 1)))
	}
	return writes, nil
}}

// G5: whatever goes wrong with an aggregate, with one or with more than there are workers, in a
// session of its own or in a shared one, the later events of a healthy aggregate are applied within
// neighbourBound.
func TestG5NoFailureHoldsUpANeighbour(t *testing.T) {
	const (
		workers        = 2
		neighbourBound = 5 * time.Second
	)
	for name, trouble := range map[string]struct {
		// sent returns the events of an aggregate; the last ones go wrong.
		sent func(aggregate string) []envelope.Change
		// seen reports whether n aggregates are in trouble.
		seen func(w *world.World, p *world.Projector, n int) bool
		// before, if set, makes the trouble before the projector runs.
		before func(w *world.World)
	}{
		"poison": {sent: eventsOf("Poison"), seen: letters(1)},
		"parked": {sent: eventsOf("Poison", "T", "T"), seen: letters(3)},
		"version gap": {
			func(a string) []envelope.Change { return []envelope.Change{event(a, 1, "T"), event(a, 3, "T")} }, waiting, nil,
		},
		"unknown error": {sent: eventsOf("Unlisted"), seen: waiting},
		"full document": {sent: eventsOf("Big", "Small"), seen: waiting},
		"body away": {
			func(a string) []envelope.Change { return []envelope.Change{unfetchable(a, 1)} }, waiting, nil,
		},
		"hung projection":       {sent: eventsOf("Endless"), seen: waiting},
		"hung program":          {sent: eventsOf("Endless"), seen: waiting},
		"failing program":       {sent: eventsOf("Unlisted"), seen: waiting},
		"refused by the driver": {sent: eventsOf("Channel"), seen: letters(1)},
		"contended transaction": {
			eventsOf("Shared"),
			func(_ *world.World, p *world.Projector, _ int) bool {
				return strings.Contains(p.Log.Text(), "ended abandoned transactions")
			},
			func(w *world.World) {
				_, err := w.Client.Database(world.ReadModel).Collection("totals").InsertOne(w.Context(), bson.D{{Key: "_id", Value: "all"}})
				require.NoError(w, err)
				openTransaction(w, "sluice-projector") // that was killed
			},
		},
		"overtaken": {
			func(a string) []envelope.Change {
				return []envelope.Change{versionless(a, 1), versionless(a, 2), versionless(a, 3)}
			},
			func(w *world.World, _ *world.Projector, n int) bool {
				stats := w.Bus.Stats(world.SubscriptionPath)
				if stats.DeadLettered < n || stats.Active+stats.Locked > 0 {
					return false // a replay would be in time to apply all three in order
				}
				require.Equal(w, 1, operate(w, shape{project: troubled{}, name: "troubled"}, "parked", "replay", "--all").Code)
				return true
			},
			func(w *world.World) {
				second := versionless("a", 2).Position
				_, err := w.Bus.TakeOut(world.SubscriptionPath, func(a servicebus.Accepted) string {
					if _, versioned := a.Properties["version"]; a.Properties["position"] == second && !versioned {
						return servicebus.UsedUp
					}
					return ""
				})
				require.NoError(w, err)
			},
		},
	} {
		many := 20 * workers
		switch name {
		case "full document": // 16 MB each
			many = 2*workers + 1
		case "hung projection", "hung program":
			many = 200 * workers
		}
		for _, many := range []int{1, many} {
			for _, key := range []envelope.SessionKey{{}, envelope.Buckets(1)} {
				subtest(t, fmt.Sprint(name, "/", many, "/", key), func(w *world.World) {
					until := make(chan struct{})
					defer close(until)
					var project projection.Projection = troubled{until}
					if name == "contended transaction" {
						project = contending
					}
					if trouble.before != nil {
						trouble.before(w)
					}
					settings := runs(project)
					if strings.HasSuffix(name, " program") {
						g := w.StartProgram(project)
						defer g.End()
						settings = g.Runs(project.Name())
					}
					p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
						settings(c, o)
						c.MaxSessions, c.Connections = workers, 1
					})
					for n := range many {
						publish(w, inSessions(key, trouble.sent(fmt.Sprint("bad-", n))...)...)
					}
					for n := 1; n <= 5; n++ {
						began := time.Now()
						publish(w, inSessions(key, event("healthy", n, "T"))...)
						w.Eventually("the healthy one is applied", func() bool { return healthy(w) == n })
						require.LessOrEqual(w, time.Since(began), neighbourBound)
						if n == 1 {
							w.Eventually("it has gone wrong", func() bool { return trouble.seen(w, p, many) })
						}
						w.Pass(10 * time.Second)
					}
					require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered, "a delivery count rose")
				})
			}
		}
	}
}

// eventsOf returns a function that gives an aggregate events of these types.
func eventsOf(types ...string) func(aggregate string) []envelope.Change {
	return func(aggregate string) (all []envelope.Change) {
		for i, eventType := range types {
			all = append(all, event(aggregate, i+1, eventType))
		}
		return all
	}
}

// letters returns a check that each aggregate has the given number of dead letters.
func letters(each int) func(*world.World, *world.Projector, int) bool {
	return func(w *world.World, _ *world.Projector, n int) bool {
		return w.Bus.Stats(world.SubscriptionPath).DeadLettered == n*each
	}
}

// waiting lets the projector receive all events, and reports whether one event of each aggregate
// waits.
func waiting(w *world.World, _ *world.Projector, n int) bool {
	w.Pass(10 * time.Second)
	stats := w.Bus.Stats(world.SubscriptionPath)
	return stats.Active+stats.Locked >= n && stats.DeadLettered == 0
}

// healthy returns how many events of the healthy aggregate took effect.
func healthy(w *world.World) int {
	events, _ := read(w, "troubled", "healthy").Lookup("events").AsInt64OK()
	return int(events)
}
