package build

import (
	"errors"
	"fmt"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// errDepends is a projection whose read model cannot be built from documents.
var errDepends = errors.New("the projection's writes depend on the position, the time or the id of the event's message, which the source does not hold: " +
	"keep what the read model needs in the document itself")

// fold is what is known of one aggregate while its documents are read, in order.
type fold struct {
	built  apply.Built
	events int64
	store  memory.Store
	one    projection.OneDocument // nil if the projection is not one
	// unordered is set once a document had no version, so that its place among others is not known.
	unordered bool
}

func newFold(p projection.Projection, aggregate string) *fold {
	one, _ := p.(projection.OneDocument)
	return &fold{built: apply.Built{Aggregate: aggregate}, one: one}
}

// compactAt is how many writes are held before they are folded, so that an aggregate of many events
// costs no more memory than its effect.
const compactAt = 1000

// follows records the version of the next document. It reports false if the aggregate cannot be
// built.
func (f *fold) follows(c envelope.Change) bool {
	f.events++
	f.unordered = f.unordered || c.Version == 0
	switch {
	case f.built.Failed != nil:
		return false
	case f.unordered && f.events > 1:
		f.fail(errors.New("it has several documents, and one has no version, so their order is not known"))
		return false
	case c.Version > 0 && (f.events == 1 || c.Version != f.built.Version+1):
		f.built.First = c.Version // of none before it is it known that it was there
	}
	f.built.Version = c.Version
	return true
}

// add projects a document, in its two guesses. The error ends the build; what keeps the aggregate
// alone from being built is recorded as its failure.
func (f *fold) add(p projection.Projection, c, other envelope.Change) error {
	writes, err := apply.Project(p, c)
	if err == nil {
		var guessed []projection.Write
		if guessed, err = apply.Project(p, other); err == nil && !memory.Same(writes, guessed) {
			return fmt.Errorf("%w (document %s)", errDepends, c.Key())
		}
	}
	if err == nil {
		err = f.apply(writes)
	}
	if err != nil {
		f.fail(fmt.Errorf("document %s: %w", c.Key(), err))
	}
	return nil
}

func (f *fold) apply(writes []projection.Write) (err error) {
	if f.one == nil {
		if f.built.Writes = append(f.built.Writes, writes...); len(f.built.Writes) >= compactAt {
			f.built.Writes, err = apply.Compact(f.built.Writes)
		}
		return err
	}
	for _, w := range writes {
		if err := f.store.Apply(w); err != nil {
			return err
		}
	}
	return nil
}

func (f *fold) fail(err error) {
	f.built = apply.Built{Aggregate: f.built.Aggregate, Failed: err}
	f.store = memory.Store{}
}

// end returns the aggregate as it is to be written.
func (f *fold) end() *apply.Built {
	switch {
	case f.built.Failed != nil:
	case f.one != nil:
		f.built.Document, _ = f.store.Get(f.one.Collection(), f.built.Aggregate)
	default:
		var err error
		if f.built.Writes, err = apply.Compact(f.built.Writes); err != nil {
			f.fail(err)
		}
	}
	return &f.built
}
