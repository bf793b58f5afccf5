package projector_test

import (
	"errors"
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
		const count = 60
		sell(w, count, 0)
		w.Completed(count)
		publish(w, event("bad", 1, "Poison"), event("bad", 2, "T"))
		deadLettered(w, 2)

		right := w.OperateProjector(set, "verify")
		require.Equal(w, 0, right.Code)
		require.Contains(w, right.Out, "timeline against shop.events: 60 events")
		doctor := w.OperateProjector(set, "doctor")
		require.Contains(w, doctor.Out, "for 20 events of the source")
		require.Contains(w, doctor.Out, "in any order and one by one")

		fixed.Store(true)
		replayed := w.OperateProjector(set, "parked", "replay", "bad")
		require.Equal(w, 0, replayed.Code)
		require.EqualValues(w, 2, w.TimelineOf("bad").Events)

		g.Stop()
		status := w.OperateProjector(set, "status")
		require.Equal(w, 0, status.Code)
		require.Contains(w, status.Out, "timeline")
		require.Equal(w, 0, w.OperateProjector(set, "parked", "list").Code)
		away := w.OperateProjector(set, "verify")
		require.Equal(w, 1, away.Code)
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
		g := w.StartProgram(&dice{})
		defer g.End()
		set := g.Runs("dice")
		w.StartProjector(set)
		sell(w, 40, 0)
		w.Completed(40)
		doctor := w.OperateProjector(set, "doctor")
		require.Equal(w, 1, doctor.Code)
		require.Contains(w, doctor.Out, "answered differently the second time")
		require.Equal(w, 1, w.OperateProjector(set, "verify").Code)
	})
}

// dice writes another number each time.
type dice struct{ thrown atomic.Int64 }

func (*dice) Name() string       { return "dice" }
func (*dice) Collection() string { return "dice" }

func (p *dice) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update("dice", e.Aggregate, projection.Set("n", p.thrown.Add(1)))}, nil
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
		endCleanly(w, p)
		for name, other := range map[string]projection.Projection{
			"another keyedBy":                     grown{keyed: "other"},
			"that of the projection mirror":       named{"copies", "mirror"},
			"that the projection grown writes to": named{"thief", "grown"},
			"one document":                        named{"grown", "grown"},
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

// named is a projection of one document under some names.
type named struct{ name, collection string }

func (n named) Name() string       { return n.name }
func (n named) Collection() string { return n.collection }

func (n named) Project(projection.Event) ([]projection.Write, error) {
	return nil, projection.Permanent(errors.New("it has no rule"))
}

// A stop does not wait for a program that does not answer.
func TestAProjectorStopsWhileItsProgramHangs(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		g, p, end := goesWrong(w, func(c *projector.Config) { c.ProjectionTimeout = time.Minute })
		defer end()
		publish(w, event("a", 1, "Hangs"), event("a", 2, "Hangs"))
		w.Eventually("it is asked", func() bool { return g.Posted() > 0 })
		began := time.Now()
		endCleanly(w, p)
		require.Less(w, time.Since(began), 20*time.Second, "SHUTDOWN_TIMEOUT")
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
		require.Equal(w, 2, w.Bus.Stats(world.SubscriptionPath).Active)
	})
}
