package envelope

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Operation is the kind of a change: the operationType of the change stream.
type Operation string

// The operations of documents. The other events of a change stream (drop, rename, invalidate, …)
// are about the collection, and never become messages.
const (
	Insert  Operation = "insert"
	Update  Operation = "update"
	Replace Operation = "replace"
	Delete  Operation = "delete"
)

// Known reports whether o is one of the operations that a message can carry.
func (o Operation) Known() bool {
	switch o {
	case Insert, Update, Replace, Delete:
		return true
	}
	return false
}

// Row is how a document of a snapshot relates to what was published before it. Empty means that the
// change is an event of the change stream.
type Row string

// The rows.
const (
	// RowInitial is a document that no earlier message of the stream can have contained.
	RowInitial Row = "initial"
	// RowRepeat is a document that earlier messages of the stream may have contained.
	RowRepeat Row = "repeat"
)

// Known reports whether r is empty or one of the rows.
func (r Row) Known() bool { return r == "" || r == RowInitial || r == RowRepeat }

// Change is one change of one document, with everything that either service needs to know about it.
type Change struct {
	// Stream names the watched collection and its settings; with Token it identifies the change.
	Stream string
	// Token is the resume token as text ([TokenText]). Only the producer knows it: a message
	// carries its hash.
	Token string
	// MessageID is set by [Decode]; [Encode] derives it from Stream, Token and Generation.
	MessageID string
	// Generation is how often the stream has been rewound in order to publish it again. It is part
	// of the MessageId and of nothing else. Only the producer knows it.
	Generation int64
	// Position orders the changes of a stream. Positions are compared as strings.
	Position string
	// Epoch is the publishing leader's epoch, from 1.
	Epoch int64
	// Aggregate is the aggregate id as text ([Text]).
	Aggregate string
	// Session is the id of the session that carries the change ([SessionKey.Session]); empty means
	// the aggregate's own ([SessionID]). Only the producer sets it. It does not identify an
	// aggregate: many can share a session.
	Session   string
	Operation Operation
	// Type is the event's type if the event has one, else the operation.
	Type string
	// Version is the event's number within its aggregate if the event has one; 0 means unknown.
	Version int64
	// Time is when the change was made: the server's wall time; without it, its cluster time (whole
	// seconds); without both, zero.
	Time time.Time
	// CorrelationID and TraceParent (W3C Trace Context) are optional.
	CorrelationID string
	TraceParent   string
	// Body is the change as the server sent it: operationType, ns, documentKey, clusterTime,
	// wallTime, fullDocument, fullDocumentBeforeChange, updateDescription. A field is missing if
	// the server did not send it.
	Body bson.Raw
	// PostImage reports whether the document of an update is the update's own result: the source
	// keeps post-images, and the producer asks for them. Otherwise the document was looked up when
	// the producer read the change, and may contain later changes.
	PostImage bool
	// Row is set if the change is a document of a snapshot, as an insert, and not an event.
	Row Row
	// Claim is the place of the body if it is too large for the message. Body is nil then, until
	// [Change.Redeem].
	Claim *Claim
}

// Document returns the document after the change. It is nil for a delete, and for an update if the
// document has been deleted since or the producer did not ask for it.
func (c Change) Document() bson.Raw { return c.sub("fullDocument") }

// Before returns the document before the change, if the collection keeps pre-images; else nil.
func (c Change) Before() bson.Raw { return c.sub("fullDocumentBeforeChange") }

// Key returns the changed document's key: its _id, and the shard key's fields on a sharded
// collection.
func (c Change) Key() bson.Raw { return c.sub("documentKey") }

// SessionID returns the id of the session that carries the change.
func (c Change) SessionID() string {
	if c.Session != "" {
		return c.Session
	}
	return SessionID(c.Aggregate)
}

func (c Change) sub(field string) bson.Raw {
	document, _ := c.Body.Lookup(field).DocumentOK()
	return document
}
