package projection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// MirrorOptions are the options of a [Mirror]. The zero value mirrors whole documents, by their
// _id.
type MirrorOptions struct {
	// Collection is the documents' collection; empty means mirror.
	Collection string
	// Key is the path (with dots) of the field whose value becomes the _id; empty means _id. Its
	// values must be unique in the source. A value that moves from one document to another must
	// stay within one aggregate: no order between aggregates is guaranteed, so the delete of the
	// old document could remove the new one. A delete, a replacement and an update of the key must
	// remove the copy with the old key, which only a pre-image (changeStreamPreAndPostImages)
	// contains: without one, such an event is a permanent error.
	Key string
	// Fields are the top-level fields to keep, besides _id; empty keeps all. After a change of
	// Fields, a copy keeps its old fields until its document changes.
	Fields []string
}

// NewMirror returns a mirror with options. The error names every option that is wrong.
func NewMirror(o MirrorOptions) (Mirror, error) {
	var problems []error
	if strings.ContainsAny(o.Collection, "$\x00") || strings.HasPrefix(o.Collection, "system.") {
		problems = append(problems, errors.New("the collection's name is not one that MongoDB takes"))
	}
	for step := range strings.SplitSeq(o.Key, ".") {
		if o.Key != "" && (step == "" || step[0] == '$') {
			problems = append(problems, fmt.Errorf("the key %q is not a path of fields", o.Key))
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

// Plain reports that the mirror has no options, so that the settings of a projector may set them.
func (m Mirror) Plain() bool {
	return m.options.Collection == "" && m.options.Key == "" && len(m.options.Fields) == 0
}

// key returns the _id of a change's copy, and in moved the _id that the copy had before, if the
// change gave it another one. The _id has type 0 if it is not known and not needed: the document
// has been deleted, and the delete's own event follows.
func (m Mirror) key(e Event) (id, moved bson.RawValue, err error) {
	if m.options.Key == "" {
		if id = e.Key().Lookup("_id"); id.Type == 0 {
			return id, moved, Permanent(errors.New("the change carries no documentKey._id"))
		}
		return id, moved, nil
	}
	path := strings.Split(m.options.Key, ".")
	after, before := e.Document().Lookup(path...), e.Before().Lookup(path...)
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
			id = before // it may have had another key, and we do not guess
		case before.Type != 0 && !before.Equal(after):
			moved = before
		}
	}
	if id.Type == 0 || id.Type == bson.TypeNull || id.Type == bson.TypeArray {
		return id, moved, Permanent(fmt.Errorf("the %s does not contain the document's key %s: check that every document has it, that the source "+
			"collection keeps pre-images (changeStreamPreAndPostImages), and that the producer looks up updated documents (FULL_DOCUMENT=updateLookup)",
			e.Operation, m.options.Key))
	}
	return id, moved, nil
}

// changesKey reports whether an update writes to the key, to a part of it or to what contains it.
// It is true if the description is missing or cannot be read.
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

// keeps reports whether a path belongs to a field that is kept.
func (m Mirror) keeps(path string) bool {
	field, _, _ := strings.Cut(path, ".")
	return len(m.options.Fields) == 0 || field == "_id" || slices.Contains(m.options.Fields, field)
}

// document returns the copy of a source document: unchanged, if nothing is mapped or selected.
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
