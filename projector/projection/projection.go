// Package projection is the API for read models. A projection is a name, and a function from an
// event to the writes that it causes.
//
// A projection is pure: it reads the event and nothing else, keeps no state, and returns the same
// writes for the same event every time. The projector does the rest and guarantees, per aggregate:
//   - events arrive in commit order;
//   - the effect of each event is written once, although messages are delivered again after a
//     crash, a lost lock or a change of leaders: a guard with the position of the last applied
//     event is written together with the effects;
//   - a message is completed only after its effect is committed with write concern majority.
//
// Not guaranteed: any order between different aggregates; and that each event is written
// separately: the events of a batch may be folded into one update, so that readers see several of
// them appear at once (but never a part of an event).
//
// To write a projection, implement [Projection], [Stored] or [OneDocument] in a module of your own,
// and pass it to projector.Main, which is the whole program. README.md in this folder shows how;
// package projectiontest tests a projection without a database.
package projection

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Event is one change of one document of the watched collection, decoded from its message. Its
// fields and methods are those of the embedded [envelope.Change]. A projection reads
//
//	e.Aggregate     string     the aggregate's id as text (AGGREGATE_ID_PATH, or the _id)
//	e.Operation     Operation  insert, update, replace or delete
//	e.Type          string     the event's type (EVENT_TYPE_PATH, or the operation)
//	e.Version       int64      its number within the aggregate (VERSION_PATH, or 0)
//	e.Time          time.Time  when the change was made, by the server's clock, or zero
//	e.CorrelationID string     the change's correlation id, or empty
//
//	e.Text(path)          string    a field after the change, or ""
//	e.Int(path)           int64     the same as an integer, or 0
//	e.Document()          bson.Raw  the document after the change; nil if deleted
//	e.Before()            bson.Raw  the document before, if there are pre-images
//	e.Key()               bson.Raw  {_id: …}, with the shard key if sharded
//	e.UpdateDescription() bson.Raw  what an update changed, or nil
//
// What else there is (Position, Epoch, MessageID, Stream, …) is the stream's own, and `projector
// verify` cannot compare documents that depend on it or on Time: the source does not hold them.
type Event struct {
	envelope.Change
}

// Operation is what was done to the document.
type Operation = envelope.Operation

// The operations.
const (
	OperationInsert  = envelope.Insert
	OperationUpdate  = envelope.Update
	OperationReplace = envelope.Replace
	OperationDelete  = envelope.Delete
)

// UpdateDescription returns what an update changed (updatedFields, removedFields, truncatedArrays);
// nil if the event does not carry it.
func (e Event) UpdateDescription() bson.Raw {
	doc, _ := e.Body.Lookup("updateDescription").DocumentOK()
	return doc
}

// LookedUp reports whether the document of an update was looked up by the producer when it read the
// change (FULL_DOCUMENT=updateLookup), rather than stored when the update was made: it may contain
// later changes. The documents of inserts and replacements are always the change's own. It is true
// of an update published by a producer that does not report it.
func (e Event) LookedUp() bool {
	return e.Operation == OperationUpdate && !e.PostImage && e.Document() != nil
}

// gone reports whether the document of an update had been deleted when it was looked up.
func (e Event) gone() bool { return e.Body.Lookup("fullDocument").Type == bson.TypeNull }

// Projection turns events into writes. Its functions are called from many goroutines at once.
type Projection interface {
	// Name is the name of the projection and of its positions collection, <name>_positions. It must
	// never change: under another name the projection would not know what it has applied.
	Name() string
	// Project returns the writes of one event, in order; none if the event does not concern the
	// projection. An error made by [Permanent], or a panic, parks the event's aggregate: the event
	// and all later ones of the aggregate wait in the dead-letter queue until they are replayed.
	// Any other error is retried, and the aggregate waits meanwhile; once it has lasted for
	// UNDECIDED_AFTER while events of others were applied, it parks the aggregate as well.
	Project(e Event) ([]Write, error)
}

// OneDocument is a projection that keeps one document per aggregate: every write is an update or a
// replacement of the document in Collection() whose _id is the event's Aggregate, and nothing is
// ever deleted. The guard is then inside that document, in the field _sluice, and a batch costs one
// update instead of a transaction. A write that breaks this rule is refused as a permanent error.
//
// If the first event of an aggregate cannot be applied, the aggregate is parked in a stub: a
// document with nothing but _id and _sluice {empty: true, parked: {…}}. Readers must leave out
// documents where _sluice.empty is true, and so must a validator and the unique indexes of the
// collection: while the database refuses the stub, the aggregate waits. The projection's writes do
// not see a stub: to them there is no document.
type OneDocument interface {
	Projection
	// Collection is the name of the documents' collection. Like Name, it must never change.
	Collection() string
}

// PostImages is a projection that computes with the documents of updates, by differences to Before
// for example, and so goes wrong if they were looked up later ([Event.LookedUp]). The projector
// ends at the first such event, before it has an effect, and names the remedy: post-images of the
// source, and the producer's FULL_DOCUMENT=required.
type PostImages interface {
	Projection
	// NeedsPostImages reports whether the projection computes so.
	NeedsPostImages() bool
}

// GuardField is the field that holds the guard in the documents of a [OneDocument] projection:
// {position, epoch, version, first, stream}; streams, if several of them feed the aggregate; and
// parked {since, messageId, position, reason, description} while the aggregate is parked. A
// projection must not write to it.
const GuardField = "_sluice"

// ErrPermanent marks errors that a retry cannot help.
var ErrPermanent = errors.New("permanent")

// Permanent marks an error as permanent: the event can never be applied. Its aggregate is parked,
// with err's text as the description, and the event is dead-lettered. The text must not contain
// secrets.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

type permanent struct{ error }

func (p permanent) Unwrap() error        { return p.error }
func (p permanent) Is(target error) bool { return target == ErrPermanent }
