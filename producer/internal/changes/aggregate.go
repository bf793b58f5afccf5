package changes

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ErrUnknownAggregate: nothing that is the same at every reading says which aggregate a change belongs to.
var ErrUnknownAggregate = errors.New("the change does not say which aggregate it belongs to")

// Images says which image of a document tells the aggregate of an update or a delete. A document that is looked up when the change is
// read is none: it may say something else the next time.
type Images struct {
	// Before: the document before the change (fullDocumentBeforeChange).
	Before bool
	// After: the document after an update (fullDocument), where Before is not asked for.
	After bool
}

// OfUpdates says in a word where the aggregate of an update is found: in an image, or in the document's key.
func (m Mapping) OfUpdates() string { return m.source(envelope.Update) }

// OfDeletes is [Mapping.OfUpdates] of a delete.
func (m Mapping) OfDeletes() string { return m.source(envelope.Delete) }

func (m Mapping) source(o envelope.Operation) string {
	if m.inID() || m.ByKey && !m.Images.tell(o) {
		return "documentKey"
	}
	return "image"
}

// inID says that the path leads into the _id, which every change has in its key.
func (m Mapping) inID() bool { return root(m.AggregatePath) == "_id" }

// needsImages says that there may be changes whose aggregate only an image tells.
func (m Mapping) needsImages() bool {
	return !m.ByKey && !m.inID() && (slices.Contains(m.Operations, envelope.Update) || slices.Contains(m.Operations, envelope.Delete))
}

// imagesTellAll says that the settings ask for an image of every change that needs one.
func (m Mapping) imagesTellAll() bool {
	return !slices.ContainsFunc(m.Operations, func(o envelope.Operation) bool {
		return (o == envelope.Update || o == envelope.Delete) && !m.Images.tell(o)
	})
}

// aggregate is the aggregate of a change as text, and the value that says so, from what is the same whoever reads it and whenever: the
// document's key, the inserted or replaced document, an image of an updated or deleted one. Such a document without an aggregate id is
// an aggregate of its own, by documentKey._id. A change without its image belongs nowhere ([ErrUnknownAggregate]), or to
// documentKey._id where ByKey says so.
func (m Mapping) aggregate(c envelope.Change) (id bson.RawValue, text string, err error) {
	key := c.Key()
	// By the key means by its _id: the aggregate's id would come into the key if the collection were sharded by it.
	if m.inID() || m.source(c.Operation) == "image" {
		id = atKey(key, m.AggregatePath)
	}
	if text, ok := m.text(id); ok {
		return id, text, nil
	}
	document, known := m.lasting(c)
	id = at(document, m.AggregatePath)
	if text, ok := m.text(id); ok {
		return id, text, nil
	}
	if !known {
		return id, "", fmt.Errorf("%w: %s at %s of the document %.200s: there is no image that could hold %s. %s",
			ErrUnknownAggregate, c.Operation, c.Position, key, m.AggregatePath, m.missing(c.Operation))
	}
	id = key.Lookup("_id")
	text, ok := m.text(id)
	switch {
	case ok:
		return id, text, nil
	case id.Type == 0:
		return id, "", fmt.Errorf("read change event at %s: it has neither %s nor documentKey._id", c.Position, m.AggregatePath)
	}
	// An empty string or null is a legal _id, and no legal session: its Extended JSON stands for it.
	if text = id.String(); text == "" {
		return id, "null", nil
	}
	return id, text, nil
}

// lasting is the document of a change that is the same at every reading. known is false where there should be one and is none.
func (m Mapping) lasting(c envelope.Change) (document bson.Raw, known bool) {
	switch {
	case c.Operation == envelope.Insert, c.Operation == envelope.Replace:
		return c.Document(), true
	case m.Images.Before:
		document = c.Before()
	case m.Images.After && c.Operation == envelope.Update:
		document = c.Document()
	}
	return document, document != nil || m.inID() || m.ByKey && !m.Images.tell(c.Operation)
}

// tell says whether an image is what tells the aggregate of such a change.
func (i Images) tell(o envelope.Operation) bool { return i.Before || i.After && o == envelope.Update }

// missing says what to do about a change without its image.
func (m Mapping) missing(o envelope.Operation) string {
	if !m.Images.tell(o) {
		return "The settings ask for no image of it: set FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable, and " + remedies
	}
	return "The collection did not keep it when the document was changed, or it has expired since " +
		"(changeStreamOptions.preAndPostImages.expireAfterSeconds). Take the checkpoint past this change with `producer token set --forward`, and " +
		"mend by hand what it changed; for those to come, " + remedies
}

// remedies are the ways to tell the aggregate of updates and deletes.
const remedies = "have the collection keep images (collMod with changeStreamPreAndPostImages: {enabled: true}); or publish inserts and replaces " +
	"alone (OPERATIONS=insert,replace); or make each document an aggregate of its own (AGGREGATE_ID_PATH=_id, in new read models); or let " +
	"updates and deletes go by documentKey._id, in another order than the inserts of their aggregate (ON_UNKNOWN_AGGREGATE=documentKey)"

// versionOf is where a change has its number within its aggregate, from what is the same at every reading; zero where nothing says. Of
// an update it is what the update itself wrote, or the image afterwards: the one before has the number before, and a document that is
// looked up may have a later one, which would look like a gap.
func (m Mapping) versionOf(c envelope.Change) (value bson.RawValue) {
	switch c.Operation {
	case envelope.Insert, envelope.Replace:
		value = at(c.Document(), m.VersionPath)
	case envelope.Delete:
		value = at(c.Before(), m.VersionPath)
	case envelope.Update:
		if updated, ok := c.Body.Lookup("updateDescription", "updatedFields").DocumentOK(); ok && m.VersionPath != "" {
			value = atKey(updated, m.VersionPath)
		}
		if value.Type == 0 && m.PostImages {
			value = at(c.Document(), m.VersionPath)
		}
	}
	return value
}

// atKey is the value at a path in a document whose fields may be named by whole paths: a document's key, what an update wrote.
func atKey(document bson.Raw, path string) bson.RawValue {
	if value := at(document, path); value.Type != 0 || document == nil || path == "" {
		return value
	}
	return document.Lookup(path)
}
