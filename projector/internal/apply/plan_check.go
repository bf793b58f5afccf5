package apply

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// promiseError is a write that breaks a rule of package projection: a mistake in the projection's
// code.
type promiseError struct{ text string }

func (e promiseError) Error() string        { return e.text }
func (e promiseError) Is(target error) bool { return target == projection.ErrPermanent }

func broken(format string, args ...any) error { return promiseError{fmt.Sprintf(format, args...)} }

// ErrNotOneUpdate is a mistake in the code of a [projection.OneDocument].
var ErrNotOneUpdate = broken("the writes of one event cannot be expressed as one update: they write to the same field in ways that exclude each other")

// check checks the writes against the rules: they name a collection and an id; those of a
// [projection.Stored] go to collections that it declares; those of a [projection.OneDocument] go to
// its one document, leave the guard alone and delete nothing.
func check(p projection.Projection, c *envelope.Change, writes []projection.Write) error {
	one, isOne := p.(projection.OneDocument)
	declared, named := projection.Collections(p)
	for _, w := range writes {
		if w == nil {
			return broken("projection %s gave a nil write", p.Name())
		}
		collection, id := w.Target()
		if collection == "" || id == nil {
			return broken("projection %s gave a write without a collection or an id", p.Name())
		}
		var invalid error
		switch w := w.(type) {
		case projection.UpdateOne:
			if len(w.Ops) == 0 {
				return broken("projection %s gave an update of %s without an operator", p.Name(), collection)
			}
			for _, op := range w.Ops {
				invalid = cmp.Or(invalid, op.Validate())
			}
		case projection.DeleteOne:
			invalid = w.Validate()
		case projection.ReplaceOne:
			if w.Document == nil {
				return broken("projection %s gave a replacement of %s without a document", p.Name(), collection)
			}
		}
		if invalid != nil {
			return broken("projection %s gave a write to %s that cannot be done: %v", p.Name(), collection, invalid)
		}
		if !isOne {
			if collection == positionsCollection(p) {
				return broken("projection %s writes to its own record of positions, %s", p.Name(), collection)
			}
			if named && !slices.ContainsFunc(declared, func(d projection.Collection) bool { return d.Name == collection }) {
				return broken("projection %s writes to collection %s, which it does not declare: its documents would have no indexes, "+
					"and verify would not see them. Add it to the declared collections, or correct the name", p.Name(), collection)
			}
			continue
		}
		if collection != one.Collection() || id != any(c.Aggregate) {
			return broken("projection %s promised one document per aggregate in %s, and writes to another", p.Name(), one.Collection())
		}
		switch w := w.(type) {
		case projection.DeleteOne:
			return broken("projection %s promised one document per aggregate, and deletes it", p.Name())
		case projection.UpdateOne:
			for _, op := range w.Ops {
				if step, _, _ := strings.Cut(op.Field, "."); step == projection.GuardField || step == "_id" || step == "" {
					return broken("projection %s writes to the field %q", p.Name(), op.Field)
				}
			}
		case projection.ReplaceOne:
			if _, err := w.Document.LookupErr(projection.GuardField); err == nil {
				return broken("projection %s writes to the field %q", p.Name(), projection.GuardField)
			}
		}
	}
	return nil
}

// Project returns the projection's writes for one change as the applier gets them, checked against
// the rules of package projection. The error of a broken rule, and of a panic, is a
// [projection.ErrPermanent].
func Project(p projection.Projection, c envelope.Change) ([]projection.Write, error) {
	writes, _, err := project(p, c)
	if err != nil {
		return nil, err
	}
	if _, one := p.(projection.OneDocument); one && !new(Fold).Add(writes) {
		return nil, ErrNotOneUpdate
	}
	return writes, nil
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
