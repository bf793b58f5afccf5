package apply

import (
	"reflect"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Fold combines the writes of one aggregate's events to its one document, so that they are applied
// at once. The zero value is empty.
type Fold struct {
	fold   *fold
	target projection.Write // any of the writes
}

// Add adds the writes of one more event. If they cannot be combined with the others into one write,
// it returns false and changes nothing.
func (f *Fold) Add(writes []projection.Write) bool {
	if len(writes) == 0 {
		return true
	}
	if f.fold == nil {
		f.fold = newFold()
	}
	if !f.fold.foldIn(writes) {
		return false
	}
	f.target = writes[0]
	return true
}

// Take returns a write with the effect of all that were added, and forgets them; false if there was
// no write.
func (f *Fold) Take() (projection.Write, bool) {
	folded := f.fold
	if folded == nil || f.target == nil {
		return nil, false
	}
	collection, id := f.target.Target()
	*f = Fold{}
	if folded.replacement != nil {
		return projection.ReplaceOne{Collection: collection, ID: id, Document: folded.replacement}, true
	}
	return projection.UpdateOne{Collection: collection, ID: id, Upsert: folded.upsert, Ops: folded.ops}, true
}

// ProjectTwice returns the projection's writes for a change in two guesses at what its document
// does not hold, checked as by [Project]; for a [projection.OneDocument], [Fold.Add] checks the
// rest. If the projection gives the same for both, they are one slice.
func ProjectTwice(p projection.Projection, c, guess envelope.Change) (writes, guessed []projection.Write, err error) {
	given, writes, err := project(p, c)
	if err != nil {
		return nil, nil, err
	}
	again, err := unchecked(p, guess)
	if err == nil && reflect.DeepEqual(given, again) {
		return writes, writes, nil
	}
	_, guessed, err = project(p, guess)
	return writes, guessed, err
}

// unchecked returns the writes of one event as the projection gives them, unchecked.
func unchecked(p projection.Projection, c envelope.Change) (given []projection.Write, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = recovered(r)
		}
	}()
	return p.Project(projection.Event{Change: c})
}
