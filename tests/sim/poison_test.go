package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// poison is the type of the events that no projection here can apply until it is fixed.
const poison = "Poison"

var errPoison = errors.New("poison, until the projection is fixed")

// cannot returns the error of a projection for an event that it cannot apply.
func (w *world) cannot(e projection.Event) error {
	if d := time.Duration(w.slowEvents.Load()); d > 0 {
		w.met.add("slow events", 1)
		time.Sleep(d)
	}
	kind, _ := e.Document().Lookup("type").StringValueOK()
	if returns, hangs := w.hangs.Load(e.Aggregate); hangs && kind == plan.Hanging {
		w.met.add("hung projections", 1)
		<-returns.(chan struct{})
	}
	if kind == poison && !w.fixed.Load() {
		return projection.Permanent(errPoison)
	}
	return nil
}

// mannered adds to the writes of an event what its manner of being poison adds, until it is fixed.
func (w *world) mannered(e projection.Event, writes []projection.Write, err error) ([]projection.Write, error) {
	kind, _ := e.Document().Lookup("type").StringValueOK()
	manner, ok := strings.CutPrefix(kind, poison+"-")
	if err != nil || !ok || w.fixed.Load() || len(writes) == 0 {
		return writes, err
	}
	w.met.add("poison in other manners", 1)
	first := writes[0].(projection.UpdateOne)
	add := func(field string, value any) projection.Write {
		return projection.Update(first.Collection, first.ID, projection.Set(field, value))
	}
	switch manner {
	case plan.PanicsLate:
		return append(writes, add("late", panics{})), nil
	case plan.Unencodable:
		return append(writes, add("late", make(chan int))), nil
	case plan.TooLarge:
		return append(writes, add("late", strings.Repeat("x", 49<<20))), nil // above maxMessageSizeBytes
	default:
		for n := range 17 { // the embedded MongoDB compares each two fields of an update
			writes = append(writes, add(fmt.Sprint("late.", n), strings.Repeat("x", 1<<20)))
		}
		return writes, nil
	}
}

// panics is a value that panics while it is written as BSON.
type panics struct{}

// MarshalBSONValue implements [bson.ValueMarshaler].
func (panics) MarshalBSONValue() (byte, []byte, error) { panic("a panic while the writes are encoded") }

// brittle is a projection of one instance that cannot apply poison, and does not survive deadly
// events.
type brittle struct {
	projection.Projection
	w *world
	i *instance
}

// Project implements [projection.Projection].
func (b brittle) Project(e projection.Event) ([]projection.Write, error) {
	return b.w.project(b.i, b.Projection, e)
}

// brittleDocument is the same of a projection with one document.
type brittleDocument struct {
	projection.OneDocument
	w *world
	i *instance
}

// Project implements [projection.Projection].
func (b brittleDocument) Project(e projection.Event) ([]projection.Write, error) {
	return b.w.project(b.i, b.OneDocument, e)
}

// project returns the writes of an event, or fails as the plan requires; i is nil where no instance
// can end.
func (w *world) project(i *instance, p projection.Projection, e projection.Event) ([]projection.Write, error) {
	err := i.survives(e, &w.fixed)
	if err == nil {
		e, err = w.asInsert(e)
	}
	if err == nil {
		err = w.cannot(e)
	}
	if err != nil {
		return nil, err
	}
	writes, err := p.Project(e)
	return w.mannered(e, writes, err)
}

// commitsOf returns the events of a step's aggregate, of one stream, or of all if they share
// aggregates.
func (w *world) commitsOf(step plan.Step) (all []history.Commit) {
	random, versions := rand.New(rand.NewPCG(step.Random, 0xd7)), map[string]int64{}
	for range step.Total {
		c := history.Commit{Aggregate: step.Aggregate}
		if s := w.plan.Settings; s.Shared {
			c.Stream = s.StreamNames()[random.IntN(s.Streams)]
		}
		versions[c.Stream]++
		c.Version = versions[c.Stream]
		all = append(all, c)
	}
	return all
}

// look records what is visible beside the poison, before the fix.
func (w *world) look() {
	before, err := witness.ReadTimeline(w.Context(), w.readModel())
	require.NoError(w, err)
	expected, _ := w.record.Fold(occurred)
	w.record.Note(func(run *checker.Run) {
		run.ActualBefore, run.ExpectedBefore, run.ObservedBefore = before, expected, len(run.Observed)
	})
}
