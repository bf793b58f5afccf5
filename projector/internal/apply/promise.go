package apply

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// promiseError is a write that breaks a rule of package projection: a mistake in the projection's code.
type promiseError struct{ text string }

func (e promiseError) Error() string        { return e.text }
func (e promiseError) Is(target error) bool { return target == projection.ErrPermanent }

func broken(format string, args ...any) error { return promiseError{fmt.Sprintf(format, args...)} }

// check holds the writes against the rules: they name a collection and an id, and those of a [projection.OneDocument]
// go to its one document, leave the guard alone and delete nothing.
func check(p projection.Projection, c *envelope.Change, writes []projection.Write) error {
	one, isOne := p.(projection.OneDocument)
	for _, w := range writes {
		if w == nil {
			return broken("projection %s gave a nil write", p.Name())
		}
		collection, id := w.Target()
		if collection == "" || id == nil {
			return broken("projection %s gave a write without a collection or an id", p.Name())
		}
		if !isOne {
			if collection == positionsCollection(p) {
				return broken("projection %s writes to its own record of positions, %s", p.Name(), collection)
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

// documentKey identifies a document in a map, whatever the type of its id.
func documentKey(w projection.Write) (string, error) {
	collection, id := w.Target()
	kind, value, err := bson.MarshalValue(id)
	if err != nil {
		return "", broken("the id of a write to %s cannot be written as BSON: %v", collection, err)
	}
	var b bytes.Buffer
	b.WriteString(collection)
	b.WriteByte(0)
	b.WriteByte(byte(kind))
	b.Write(value)
	return b.String(), nil
}

// compact leaves out the writes whose effect a later replacement or deletion of the same document wipes out.
func compact(writes []projection.Write) ([]projection.Write, error) {
	wiped := make(map[string]bool)
	kept := make([]projection.Write, 0, len(writes))
	for _, w := range slices.Backward(writes) {
		key, err := documentKey(w)
		if err != nil {
			return nil, err
		}
		if wiped[key] {
			continue
		}
		if _, update := w.(projection.UpdateOne); !update {
			wiped[key] = true
		}
		kept = append(kept, w)
	}
	slices.Reverse(kept)
	return kept, nil
}
