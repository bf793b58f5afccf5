package envelope

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Operation is the kind of a change, as the change stream's operationType says it.
type Operation string

// The operations that carry data. Everything else a change stream can say (drop, rename, invalidate, …) is about the
// collection and never becomes a message.
const (
	Insert  Operation = "insert"
	Update  Operation = "update"
	Replace Operation = "replace"
	Delete  Operation = "delete"
)

// Known says whether o is one of the operations a message can carry.
func (o Operation) Known() bool {
	switch o {
	case Insert, Update, Replace, Delete:
		return true
	}
	return false
}

// Change is one change of one document, with everything either service needs to know of it.
type Change struct {
	// Stream names the watched collection and its settings; with Token it identifies the change.
	Stream string
	// Token is the resume token as text ([TokenText]). It is known to the producer only: a message carries its hash.
	Token string
	// MessageID is set by [Decode]; [Encode] derives it from Stream, Token and Generation.
	MessageID string
	// Generation is how often the stream has been rewound so that it is published anew: a part of the MessageId and of nothing else.
	// It is known to the producer only.
	Generation int64
	// Position orders the changes of a stream by plain string comparison.
	Position string
	// Epoch is the publishing leader's epoch, from 1.
	Epoch int64
	// Aggregate is the aggregate id as text ([Text]).
	Aggregate string
	// Session is the id of the session that carries the change ([SessionKey.Session]); empty means the aggregate's own
	// ([SessionID]). It is known to the producer only: many aggregates may share one, so it identifies none.
	Session   string
	Operation Operation
	// Type is the event's type where the event names one, else the operation.
	Type string
	// Version is the event's number within its aggregate where the event carries one; 0 means unknown.
	Version int64
	// Time is when the change was made: the server's wall time, else its cluster time (whole seconds), else zero.
	Time time.Time
	// CorrelationID and TraceParent (W3C Trace Context) are optional.
	CorrelationID string
	TraceParent   string
	// Body is what the server gave of the change: operationType, ns, documentKey, clusterTime, wallTime,
	// fullDocument, fullDocumentBeforeChange, updateDescription; each only where the server gave it.
	Body bson.Raw
	// Claim says where the body is kept when the message could not carry it; Body is nil then, until [Change.Redeem].
	Claim *Claim
}

// Document is the document after the change: nil for deletes, and for updates whose document is gone or was not asked
// for.
func (c Change) Document() bson.Raw { return c.sub("fullDocument") }

// Before is the document before the change, where the collection keeps pre-images; else nil.
func (c Change) Before() bson.Raw { return c.sub("fullDocumentBeforeChange") }

// Key is the changed document's key: its _id, and the shard key's fields on a sharded collection.
func (c Change) Key() bson.Raw { return c.sub("documentKey") }

// SessionID is the id of the session that carries the change.
func (c Change) SessionID() string {
	if c.Session != "" {
		return c.Session
	}
	return SessionID(c.Aggregate)
}

func (c Change) sub(field string) bson.Raw {
	doc, ok := c.Body.Lookup(field).DocumentOK()
	if !ok {
		return nil
	}
	return doc
}
