package projector_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// Every command works with a program, and those that do not project also while it is away.
func TestTheCommandsWorkWithAProgram(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		var fixed atomic.Bool
		g := w.StartProgram(fixable{repairable{fixed: &fixed}})
		defer g.End()
		set := g.Runs("timeline")
		w.StartProjector(set)
		sell(w, 60, 0)
		publish(w, event("bad", 1, "Poison"), event("bad", 2, "T"))
		deadLettered(w, 2)

		right := exits(w, 0, w.OperateProjector(set, "verify"))
		require.Contains(w, right.Out, "timeline against shop.events: 60 events")
		doctor := w.OperateProjector(set, "doctor")
		require.Contains(w, doctor.Out, "for 20 events of the source")
		require.Contains(w, doctor.Out, "in any order and one by one")

		fixed.Store(true)
		exits(w, 0, w.OperateProjector(set, "parked", "replay", "bad"))
		require.EqualValues(w, 2, w.TimelineOf("bad").Events)

		g.Stop()
		status := exits(w, 0, w.OperateProjector(set, "status"))
		require.Contains(w, status.Out, "timeline")
		require.Equal(w, 0, w.OperateProjector(set, "parked", "list").Code)
		away := exits(w, 1, w.OperateProjector(set, "verify"))
		require.Contains(w, away.Err, "the program cannot be reached")
		require.Contains(w, w.OperateProjector(set, "doctor").Out, "it does not answer as it must")
	})
}

// fixable is a timeline, under its name, that cannot apply some events before it is fixed.
type fixable struct{ repairable }

func (fixable) Name() string { return "timeline" }

// A program that is not deterministic is found by the doctor, and by verify.
func TestAProgramThatIsNotDeterministicIsFound(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		var thrown atomic.Int64
		g := w.StartProgram(keeps("dice", func(e projection.Event) projection.Write {
			return projection.Update("dice", e.Aggregate, projection.Set("n", thrown.Add(1)))
		}))
		defer g.End()
		set := g.Runs("dice")
		w.StartProjector(set)
		sell(w, 40, 0)
		doctor := exits(w, 1, w.OperateProjector(set, "doctor"))
		require.Contains(w, doctor.Out, "answered differently the second time")
		require.Equal(w, 1, w.OperateProjector(set, "verify").Code)
	})
}

// A declaration that the read model was not made with is refused at the start, and so is a
// collection of another program or projection.
func TestAProgramOfAnotherReadModelIsRefused(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		g := w.StartProgram(grown{})
		defer g.End()
		p := w.StartProjector(g.Runs("grown"))
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		p.MustEnd()
		for name, other := range map[string]projection.Projection{
			"another keyedBy":                     grown{keyed: "other"},
			"that of the projection mirror":       named("copies", "mirror"),
			"that the projection grown writes to": named("thief", "grown"),
			"one document":                        named("grown", "grown"),
		} {
			g.Replace(w.Serves(other))
			refused := w.StartProjector(g.Runs(other.Name()))
			require.ErrorContains(w, refusal(w, refused), name)
		}
		names, err := w.Client.Database(world.ReadModel).ListCollectionNames(w.Context(), bson.D{})
		require.NoError(w, err)
		require.NotContains(w, names, "mirror")
	})
}

// named returns a projection of one document under some names, which has no rule for any event.
func named(name, collection string) projection.Projection {
	return oneDocument{documents{name: name}, collection}
}

// A stop does not wait for a program that does not answer.
func TestAProjectorStopsWhileItsProgramHangs(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		g, p, end := goesWrong(w, func(c *projector.Config) { c.ProjectionTimeout = time.Minute })
		defer end()
		publish(w, event("a", 1, "Hangs"), event("a", 2, "Hangs"))
		w.Eventually("it is asked", func() bool { return g.Posted() > 0 })
		began := time.Now()
		p.MustEnd()
		require.Less(w, time.Since(began), 20*time.Second, "SHUTDOWN_TIMEOUT")
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
		require.Equal(w, 2, w.Bus.Stats(world.SubscriptionPath).Active)
	})
}
