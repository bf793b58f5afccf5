// Package memory keeps documents in memory and applies the writes of package projection to them as
// MongoDB would. Tests of projections use it, and `projector verify` recomputes read models in it.
//
// Guaranteed: a write that succeeds leaves the document that MongoDB would leave, except for the
// order of its fields (a test compares it with a server, write by write). A write that MongoDB
// refuses is an [ErrRefused]. If this package does not know what MongoDB would do, the write is an
// [ErrUnsupported]; it never guesses. A write that fails changes nothing.
//
// It supports the operators and conditions of package projection, with the types, the digits and
// the order of elements that MongoDB leaves. It does not support sums and products of decimals that
// are infinite or not a number, comparisons of code, and conditions whose path leads through an
// array.
//
// Not guaranteed: anything about indexes or the largest size of a document. A Store is not safe for
// concurrent use.
package memory

import (
	"errors"
	"fmt"
	"iter"
	"maps"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

var (
	// ErrRefused means that MongoDB refuses a write because of the write itself.
	ErrRefused = errors.New("the write is refused")
	// ErrUnsupported means that this package does not know the result of a write.
	ErrUnsupported = errors.New("the write is not supported here")
)

// Store holds documents by collection and _id. The zero value is empty and ready to use.
type Store struct {
	collections map[string]map[string]bson.D
}

// Apply applies one write.
func (s *Store) Apply(w projection.Write) error {
	collection, id := w.Target()
	key, id, err := Key(id)
	if err != nil {
		return err
	}
	documents := s.collections[collection]
	old, exists := documents[key]
	var now bson.D
	switch w := w.(type) {
	case projection.DeleteOne:
		if !exists {
			return nil
		}
		gone, err := meets(old, projection.Filter(w.If))
		if err != nil {
			return fmt.Errorf("delete from %s %v: %w", collection, id, err)
		}
		if gone {
			delete(documents, key)
		}
		return nil
	case projection.ReplaceOne:
		if exists {
			id = old[0].Value // it stays as it is, even if the write has an equal number of another type
		}
		now, err = replacement(key, id, w.Document)
	case projection.UpdateOne:
		if len(w.Ops) == 0 {
			return fmt.Errorf("%w: an update without operators", ErrRefused)
		}
		if !exists && !w.Upsert {
			return check(w.Ops)
		}
		if !exists {
			old = bson.D{{Key: "_id", Value: id}}
		}
		now, err = update(old, w.Ops, !exists)
	}
	if err != nil {
		return fmt.Errorf("write to %s %v: %w", collection, id, err)
	}
	if documents == nil {
		if s.collections == nil {
			s.collections = make(map[string]map[string]bson.D)
		}
		documents = make(map[string]bson.D)
		s.collections[collection] = documents
	}
	documents[key] = now
	return nil
}

func replacement(key string, id any, document bson.Raw) (bson.D, error) {
	var fields bson.D
	if err := bson.Unmarshal(document, &fields); err != nil {
		return nil, fmt.Errorf("%w: the document is not BSON: %w", ErrRefused, err)
	}
	now := bson.D{{Key: "_id", Value: id}}
	for _, f := range fields {
		switch {
		case f.Key == "_id" && !equal(f.Value, id):
			if other, _, err := Key(f.Value); err == nil && other == key {
				return nil, fmt.Errorf("%w: an _id that is an equal number of another type", ErrUnsupported)
			}
			return nil, fmt.Errorf("%w: the document's _id is another", ErrRefused)
		case f.Key == "_id":
		default:
			now = append(now, f)
		}
	}
	return now, nil
}

// Get returns a document, which must not be changed.
func (s *Store) Get(collection string, id any) (bson.D, bool) {
	key, _, err := Key(id)
	if err != nil {
		return nil, false
	}
	return s.ByKey(collection, key)
}

// ByKey returns the document with a [Key].
func (s *Store) ByKey(collection, key string) (bson.D, bool) {
	d, ok := s.collections[collection][key]
	return d, ok
}

// Remove removes a document.
func (s *Store) Remove(collection, key string) { delete(s.collections[collection], key) }

// All yields every document of a collection by its [Key], in no order. It must not be changed.
func (s *Store) All(collection string) iter.Seq2[string, bson.D] {
	return maps.All(s.collections[collection])
}

// Collections yields the names of the collections that were ever written to, in no order.
func (s *Store) Collections() iter.Seq[string] {
	return maps.Keys(s.collections)
}

// Len returns the number of documents.
func (s *Store) Len() (n int) {
	for _, documents := range s.collections {
		n += len(documents)
	}
	return n
}

// Key identifies an _id in a map; stored is the _id as it reads back. To MongoDB, equal numbers of
// different types are one _id.
func Key(id any) (key string, stored any, err error) {
	kind, value, err := bson.MarshalValue(id)
	if err != nil {
		return "", nil, fmt.Errorf("%w: the id is not BSON: %w", ErrRefused, err)
	}
	raw := bson.RawValue{Type: kind, Value: value}
	if kind == bson.TypeArray || kind == bson.TypeRegex || kind == bson.TypeUndefined {
		return "", nil, fmt.Errorf("%w: an _id cannot be of type %s", ErrRefused, kind)
	}
	if stored, err = Stored(raw); err != nil {
		return "", nil, err
	}
	normal := envelope.Normal(raw)
	return string(rune(normal.Type)) + string(normal.Value), stored, nil
}

// Stored returns a value as it reads back from a document.
func Stored(value any) (any, error) {
	raw, err := bson.Marshal(bson.D{{Key: "v", Value: value}})
	if err != nil {
		return nil, fmt.Errorf("%w: the value is not BSON: %w", ErrRefused, err)
	}
	var back bson.D
	if err := bson.Unmarshal(raw, &back); err != nil {
		return nil, fmt.Errorf("%w: the value is not BSON: %w", ErrRefused, err)
	}
	return back[0].Value, nil
}
