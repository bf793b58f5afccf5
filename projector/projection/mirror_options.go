package projection

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// MirrorOptions say what a [Mirror] is to be. The zero value mirrors whole documents, by their _id.
type MirrorOptions struct {
	// Collection is where the documents go; empty means mirror.
	Collection string
	// Key is the dotted path of the field whose value becomes the _id; empty means _id. Its values must be unique in the
	// source, and one that goes from a document to another must stay within one aggregate: no order between aggregates is
	// promised, and so the old document's delete could take the new one's away. A delete, a replacement, and an update of the
	// key itself leave the old key behind unless the event tells it: without a pre-image (changeStreamPreAndPostImages) such
	// an event is refused as permanent.
	Key string
	// Fields are the top-level fields that are kept, beside _id; empty keeps all. Documents written under another selection
	// keep their fields until their next change.
	Fields []string
}

// NewMirror makes a mirror. The error names every option that cannot be.
func NewMirror(o MirrorOptions) (Mirror, error) {
	var problems []error
	if strings.ContainsAny(o.Collection, "$\x00") || strings.HasPrefix(o.Collection, "system.") {
		problems = append(problems, errors.New("the collection's name is not one that MongoDB takes"))
	}
	for step := range strings.SplitSeq(o.Key, ".") {
		if o.Key != "" && (step == "" || step[0] == '$') {
			problems = append(problems, fmt.Errorf("the key %q is no path of fields", o.Key))
			break
		}
	}
	for _, field := range o.Fields {
		if field == "" || field[0] == '$' || strings.Contains(field, ".") {
			problems = append(problems, fmt.Errorf("the field %q is not the name of a top-level field", field))
		}
	}
	if o.Key == "_id" {
		o.Key = ""
	}
	return Mirror{options: o}, errors.Join(problems...)
}

// Plain says that the mirror has no options: the settings of a projector may give it some.
func (m Mirror) Plain() bool {
	return m.options.Collection == "" && m.options.Key == "" && len(m.options.Fields) == 0
}

// key is the _id of the document a change is about; moved is the one it had before, when the change gave it another key. The
// _id is of type 0 where that key cannot be told and need not be: the document is gone, and its delete follows.
func (m Mirror) key(e Event) (id, moved bson.RawValue, err error) {
	if m.options.Key == "" {
		if id = e.Key().Lookup("_id"); id.Type == 0 {
			return id, moved, Permanent(errors.New("the change carries no documentKey._id"))
		}
		return id, moved, nil
	}
	path := strings.Split(m.options.Key, ".")
	after, before := lookup(e.Document(), path), lookup(e.Before(), path)
	switch e.Operation {
	case envelope.Insert:
		id = after
	case envelope.Delete:
		id = before
	case envelope.Replace, envelope.Update:
		switch id = after; {
		case id.Type == 0 && e.Document() == nil && !changesKey(e.UpdateDescription(), m.options.Key):
			id = before // the document is gone or was not asked for
		case id.Type == 0 && e.gone() && before.Type != 0:
			return id, before, nil
		case id.Type == 0:
		case before.Type == 0 && (e.Operation == envelope.Replace || changesKey(e.UpdateDescription(), m.options.Key)):
			id = before // it may have had another key: unknown is not guessed
		case before.Type != 0 && !sameValue(before, after):
			moved = before
		}
	}
	if id.Type == 0 || id.Type == bson.TypeNull || id.Type == bson.TypeArray {
		return id, moved, Permanent(fmt.Errorf("the %s does not tell the document's key %s: is it in every document, and does the source "+
			"collection keep pre-images (changeStreamPreAndPostImages), and does the producer look updated documents up (FULL_DOCUMENT=updateLookup)?",
			e.Operation, m.options.Key))
	}
	return id, moved, nil
}

// changesKey says whether an update writes to the key, or around or inside it; also when nobody knows what it wrote to.
func changesKey(description bson.Raw, key string) bool {
	if description == nil {
		return true
	}
	touches := func(path string) bool {
		return path == key || strings.HasPrefix(path, key+".") || strings.HasPrefix(key, path+".")
	}
	updated, _ := description.Lookup("updatedFields").DocumentOK()
	fields, err := updated.Elements()
	if err != nil && updated != nil {
		return true
	}
	if slices.ContainsFunc(fields, func(f bson.RawElement) bool { return touches(f.Key()) }) {
		return true
	}
	removed, _ := description.Lookup("removedFields").ArrayOK()
	values, err := removed.Values()
	return err != nil && removed != nil || slices.ContainsFunc(values, func(v bson.RawValue) bool {
		path, ok := v.StringValueOK()
		return !ok || touches(path)
	})
}

func lookup(document bson.Raw, path []string) bson.RawValue {
	if document == nil {
		return bson.RawValue{}
	}
	return document.Lookup(path...)
}

func sameValue(a, b bson.RawValue) bool { return a.Type == b.Type && bytes.Equal(a.Value, b.Value) }

// keeps says whether a path belongs to a field that is kept.
func (m Mirror) keeps(path string) bool {
	field, _, _ := strings.Cut(path, ".")
	return len(m.options.Fields) == 0 || field == "_id" || slices.Contains(m.options.Fields, field)
}

// document is what is put for a source document: as it is, where nothing is mapped or selected.
func (m Mirror) document(id bson.RawValue, source bson.Raw) (bson.Raw, error) {
	if m.options.Key == "" && len(m.options.Fields) == 0 {
		return source, nil
	}
	elements, err := source.Elements()
	if err != nil {
		return nil, Permanent(fmt.Errorf("read the document: %w", err))
	}
	document := bson.D{{Key: "_id", Value: id}}
	for _, e := range elements {
		if e.Key() != "_id" && m.keeps(e.Key()) {
			document = append(document, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	put, err := bson.Marshal(document)
	if err != nil {
		return nil, Permanent(fmt.Errorf("write the document: %w", err))
	}
	return put, nil
}
