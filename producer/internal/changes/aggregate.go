package changes

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ErrUnknownAggregate reports a change whose aggregate cannot be determined from data that is the
// same at every reading.
var ErrUnknownAggregate = errors.New("the change does not contain the id of its aggregate")

// Images selects the image of a document that decides the aggregate of an update or a delete. A
// document that is looked up when the change is read is not an image: it may differ the next time.
type Images struct {
	// Before selects the document before the change (fullDocumentBeforeChange).
	Before bool
	// After selects the document after an update (fullDocument), if Before is not requested.
	After bool
}

// Source returns where the aggregate of an update or a delete comes from: "image" or "documentKey".
func (m Mapping) Source(o envelope.Operation) string {
	if m.pathInID() || m.ByKey && !m.Images.decides(o) {
		return "documentKey"
	}
	return "image"
}

// pathInID reports whether the path leads into the _id, which is in every change's key.
func (m Mapping) pathInID() bool { return root(m.AggregatePath) == "_id" }

// needsImages reports whether there may be changes whose aggregate can only come from an image.
func (m Mapping) needsImages() bool {
	return !m.ByKey && !m.pathInID() && (slices.Contains(m.Operations, envelope.Update) || slices.Contains(m.Operations, envelope.Delete))
}

// imagesCoverAll reports whether the settings request an image for every change that needs one.
func (m Mapping) imagesCoverAll() bool {
	return !slices.ContainsFunc(m.Operations, func(o envelope.Operation) bool {
		return (o == envelope.Update || o == envelope.Delete) && !m.Images.decides(o)
	})
}

// aggregate returns the aggregate of a change as text, and the value that it comes from. It uses
// only data that is the same no matter which replica reads it, or when: the document's key, the
// inserted or replaced document, or an image of an updated or deleted one. Such a document without
// an aggregate id is an aggregate of its own, by documentKey._id. A change without its image is an
// error ([ErrUnknownAggregate]), or belongs to documentKey._id if ByKey is set.
func (m Mapping) aggregate(c envelope.Change) (id bson.RawValue, text string, err error) {
	key := c.Key()
	// With ByKey the key means its _id: if the collection were sharded by the aggregate id, that
	// would be in the key as well.
	if m.pathInID() || m.Source(c.Operation) == "image" {
		id = atKey(key, m.AggregatePath)
	}
	if text, ok := m.text(id); ok {
		return id, text, nil
	}
	document, known := m.stableDocument(c)
	id = at(document, m.AggregatePath)
	if text, ok := m.text(id); ok {
		return id, text, nil
	}
	if !known {
		return id, "", fmt.Errorf("%w: %s at %s of the document %.200s: there is no image that could hold %s. %s",
			ErrUnknownAggregate, c.Operation, c.Position, key, m.AggregatePath, m.missingImageRemedy(c.Operation))
	}
	id = key.Lookup("_id")
	text, ok := m.text(id)
	switch {
	case ok:
		return id, text, nil
	case id.Type == 0:
		return id, "", fmt.Errorf("read change event at %s: it has neither %s nor documentKey._id", c.Position, m.AggregatePath)
	}
	// An empty string or null is a legal _id but not a legal session. Its Extended JSON is used
	// instead.
	if text = id.String(); text == "" {
		return id, "null", nil
	}
	return id, text, nil
}

// stableDocument returns the document of a change that is the same at every reading. known is false
// if there should be one and it is missing.
func (m Mapping) stableDocument(c envelope.Change) (document bson.Raw, known bool) {
	switch {
	case c.Operation == envelope.Insert, c.Operation == envelope.Replace:
		return c.Document(), true
	case m.Images.Before:
		document = c.Before()
	case m.Images.After && c.Operation == envelope.Update:
		document = c.Document()
	}
	return document, document != nil || m.pathInID() || m.ByKey && !m.Images.decides(c.Operation)
}

// decides reports whether an image decides the aggregate of such a change.
func (i Images) decides(o envelope.Operation) bool {
	return i.Before || i.After && o == envelope.Update
}

// missingImageRemedy returns what to do about a change without its image.
func (m Mapping) missingImageRemedy(o envelope.Operation) string {
	if !m.Images.decides(o) {
		return "The settings request no image of it: set  FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable, and " + aggregateRemedies
	}
	return "The collection did not keep it when the document was changed, or it has expired since " +
		"(changeStreamOptions.preAndPostImages.expireAfterSeconds). Take the checkpoint past this change with `producer token set --forward`, and " +
		"fix by hand what it changed; for later changes,  " + aggregateRemedies
}

// aggregateRemedies lists the ways to determine the aggregate of updates and deletes.
const aggregateRemedies = "have the collection keep images (collMod with changeStreamPreAndPostImages: {enabled: true}); or publish inserts and replaces " +
	"alone (OPERATIONS=insert,replace); or make each document an aggregate of its own (AGGREGATE_ID_PATH=_id, in new read models); or let " +
	"updates and deletes go by documentKey._id, in another order than the inserts of their aggregate (ON_UNKNOWN_AGGREGATE=documentKey)"

// versionOf returns the value of a change's version within its aggregate, from data that is the
// same at every reading, or a zero value. For an update it is the value that the update wrote, or
// that of the post-image. The pre-image has the previous version, and a fetched document may have
// a later one, which would look like a gap.
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

// atKey returns the value at a path in a document whose fields may be named by whole paths: a
// document's key, or the fields that an update wrote.
func atKey(document bson.Raw, path string) bson.RawValue {
	if value := at(document, path); value.Type != 0 || document == nil || path == "" {
		return value
	}
	return document.Lookup(path)
}
