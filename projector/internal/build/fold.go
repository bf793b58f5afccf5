package build

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// fold is what is known of one aggregate while its documents are read, in order.
type fold struct {
	built  apply.Built
	events int64
	one    projection.OneDocument // nil if the projection is not one
	// pending are writes to the one document that the store does not have yet.
	pending apply.Fold
	held    int // events whose writes are pending
	store   memory.Store
	// compactAt is how many writes of any other projection are held before they are expressed in
	// fewer, and measureAt after how many events the effect is measured.
	compactAt int
	measureAt int64
	// unordered is set once a document had no version, so that its place among others is not known.
	unordered bool
}

// compactAt is how many writes are held before they are folded, so that an aggregate of many events
// costs no more memory than its effect.
const compactAt = 1000

// The largest effect of one aggregate, which is written at once.
const (
	maxDocument = 16 << 20 // bytes: MongoDB's limit
	maxEffect   = 32 << 20 // bytes, of several documents
	maxWrites   = 100_000
)

func newFold(p projection.Projection, aggregate string) *fold {
	one, _ := p.(projection.OneDocument)
	return &fold{built: apply.Built{Aggregate: aggregate}, one: one, compactAt: compactAt, measureAt: compactAt}
}

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
	writes, guessed, err := apply.ProjectTwice(p, c, other)
	if err == nil && !memory.Same(writes, guessed) {
		return fmt.Errorf("the projection's writes depend on the position, the time or the id of the event's message, which the source does not hold: "+
			"keep what the read model needs in the document itself (document %s)", c.Key())
	}
	if err == nil {
		err = f.apply(writes)
	}
	if errors.Is(err, remote.ErrProgram) {
		return err
	}
	if err != nil {
		f.fail(fmt.Errorf("document %s: %w", c.Key(), err))
		return nil
	}
	if f.events >= f.measureAt {
		f.measure()
		f.measureAt = f.events + max(compactAt, f.events/4)
	}
	return nil
}

func (f *fold) apply(writes []projection.Write) (err error) {
	if f.one == nil {
		if f.built.Writes = append(f.built.Writes, writes...); len(f.built.Writes) >= f.compactAt {
			f.built.Writes, err = apply.Compact(f.built.Writes)
			f.compactAt = max(compactAt, 2*len(f.built.Writes))
		}
		return err
	}
	if f.held++; f.held < compactAt && f.pending.Add(writes) {
		return nil
	}
	if err := f.flush(); err != nil {
		return err
	}
	f.held = 1
	if !f.pending.Add(writes) {
		return apply.ErrNotOneUpdate
	}
	return nil
}

// flush applies the pending writes to the store.
func (f *fold) flush() error {
	write, any := f.pending.Take()
	if !any {
		return nil
	}
	return f.store.Apply(write)
}

// measure returns about how many bytes the effect has. It fails an aggregate whose effect is too
// large to be written at once, also while it is read, so that memory is bounded.
func (f *fold) measure() (size int) {
	if f.one == nil {
		size = apply.Size(f.built.Writes)
		if size > maxEffect || len(f.built.Writes) > maxWrites {
			f.fail(fmt.Errorf("after %d of its events, its effect is %d writes of about %d bytes, and an aggregate is written in one transaction, "+
				"of at most %d writes and %d bytes", f.events, len(f.built.Writes), size, maxWrites, maxEffect))
		}
		return size
	}
	if err := f.flush(); err != nil {
		f.fail(err)
		return 0
	}
	document, _ := f.store.Get(f.one.Collection(), f.built.Aggregate)
	raw, _ := bson.Marshal(document) // of what cannot be marshalled, the write fails
	if len(raw) > maxDocument {
		f.fail(fmt.Errorf("after %d of its events, its document has %d bytes, and MongoDB takes at most 16 MiB", f.events, len(raw)))
	}
	return len(raw)
}

func (f *fold) fail(err error) {
	f.built = apply.Built{Aggregate: f.built.Aggregate, Failed: err}
	f.store, f.pending = memory.Store{}, apply.Fold{}
}

// end returns the aggregate as it is to be written, and about how many bytes that are.
func (f *fold) end() (built *apply.Built, size int) {
	var err error
	switch {
	case f.built.Failed != nil:
		return &f.built, size
	case f.one == nil:
		f.built.Writes, err = apply.Compact(f.built.Writes)
	default:
		err = f.flush()
	}
	if err != nil {
		f.fail(err)
		return &f.built, size
	}
	size = f.measure()
	if f.one != nil && f.built.Failed == nil {
		f.built.Document, _ = f.store.Get(f.one.Collection(), f.built.Aggregate)
	}
	return &f.built, size
}
