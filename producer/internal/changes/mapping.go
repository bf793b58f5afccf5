package changes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/tracing"
)

// ErrUnknownOperation reports a change of a kind that this version does not know. It stops the
// stream, because skipping the change would silently lose it.
var ErrUnknownOperation = errors.New("unknown kind of change")

// Mapping defines where the parts of an event are in a document. Paths are dotted; an empty path
// means that the part is not used.
type Mapping struct {
	Stream          string
	AggregatePath   string
	TypePath        string
	VersionPath     string
	CorrelationPath string
	TracePath       string
	// Operations become messages; the other documented operations are skipped.
	Operations []envelope.Operation
	// Images decide the aggregate of updates and deletes.
	Images Images
	// ByKey uses documentKey._id if no image decides the aggregate
	// (ON_UNKNOWN_AGGREGATE=documentKey).
	ByKey bool
	// PostImages reports that the fullDocument of an update is its post-image and is not looked up.
	PostImages bool
	// NumbersByType gives numbers in ids a text that depends on their type, as in streams from
	// before [envelope.Text] gave equal numbers the same text.
	NumbersByType bool
	// Types reports versions and ids with misleading types; nil reports nothing.
	Types *TypeWatcher
}

// kind is how to process an event of the change stream.
type kind int

const (
	unknown    kind = iota
	change          // becomes a message
	passed          // only advances the position
	collection      // concerns the whole collection; advances the position, with a warning
	invalidate      // ends the stream, which continues with startAfter
)

func (m Mapping) kind(operation string) kind {
	switch operation {
	case "drop", "rename", "dropDatabase":
		return collection
	case "invalidate":
		return invalidate
	}
	o := envelope.Operation(operation)
	switch {
	case !o.Known():
		return unknown
	case slices.Contains(m.Operations, o):
		return change
	}
	return passed
}

// text returns a value as the stream's ids show it.
func (m Mapping) text(v bson.RawValue) (text string, ok bool) {
	if m.NumbersByType {
		return envelope.TextByType(v)
	}
	return envelope.Text(v)
}

// change maps an event of the change stream with the given token text and position. The body shares
// no memory with the event.
func (m Mapping) change(event bson.Raw, token, position string) (envelope.Change, error) {
	c := envelope.Change{
		Stream: m.Stream, Token: token, Position: position,
		Operation: envelope.Operation(event.Lookup("operationType").StringValue()),
		Time:      eventTime(event),
	}
	body, err := withoutID(event)
	if err != nil {
		return envelope.Change{}, fmt.Errorf("read change event: %w", err)
	}
	c.Body = body

	// The type and the origin are content: they are read from the document as the event shows it,
	// like the body.
	document := c.Document()
	if document == nil {
		document = c.Before()
	}
	c.PostImage = m.PostImages && c.Operation == envelope.Update && c.Document() != nil
	c.Type = string(c.Operation)
	if text, ok := m.text(at(document, m.TypePath)); ok {
		c.Type = text
	}
	if text, ok := m.text(at(document, m.CorrelationPath)); ok {
		c.CorrelationID = text
	}
	if text, ok := m.text(at(document, m.TracePath)); ok && tracing.Remote(text).IsValid() {
		c.TraceParent = text
	}
	id, text, err := m.aggregate(c)
	if err != nil {
		return c, err
	}
	version := m.versionOf(c)
	c.Aggregate = text
	c.Version, _ = envelope.Number(version)
	m.Types.Version(version, c, m.VersionPath)
	m.Types.Aggregate(id, c, m.AggregatePath)
	return c, nil
}

// at returns the value at a dotted path, or a zero value.
func at(document bson.Raw, path string) bson.RawValue {
	if document == nil || path == "" {
		return bson.RawValue{}
	}
	if !strings.Contains(path, ".") { // the usual case, several times for every event
		return document.Lookup(path)
	}
	return document.Lookup(strings.Split(path, ".")...)
}

func eventTime(event bson.Raw) time.Time {
	if ms, ok := event.Lookup("wallTime").DateTimeOK(); ok {
		return time.UnixMilli(ms).UTC()
	}
	if seconds, _, ok := event.Lookup("clusterTime").TimestampOK(); ok {
		return time.Unix(int64(seconds), 0).UTC()
	}
	return time.Time{}
}

// withoutID returns a copy of an event without its _id. It copies in one piece if that is the first
// field, as it usually is.
func withoutID(document bson.Raw) (bson.Raw, error) {
	const head = 4 // the length at the start
	if first, err := document.IndexErr(0); err == nil && first.Key() == "_id" && int(binary.LittleEndian.Uint32(document)) == len(document) {
		out := make(bson.Raw, len(document)-len(first))
		binary.LittleEndian.PutUint32(out, uint32(len(out)))
		copy(out[head:], document[head+len(first):])
		return out, nil
	}
	elements, err := document.Elements()
	if err != nil {
		return nil, err
	}
	return assemble(slices.DeleteFunc(elements, func(e bson.RawElement) bool { return e.Key() == "_id" })), nil
}
