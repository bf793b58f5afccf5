// Package projection is what one writes against to make a read model of one's own: a name, and a function from an event
// to the writes it causes.
//
// A projection is pure: it reads the event and nothing else, keeps no state, and gives the same writes for the same
// event every time. The projector does the rest and guarantees, per aggregate:
//   - events come in commit order;
//   - the effect of each event is written once, though messages are delivered again after a crash, a lost lock or a
//     change of leaders: a guard with the position of the last applied event is written together with the effects;
//   - a message is completed only after its effect is committed with write concern majority.
//
// Not guaranteed: any order between different aggregates, and that each event is written by itself: the events of one
// batch may be folded into one update, so readers may see several of them appear at once (never some of an event).
//
// One's own lies in a module of one's own: implement [Projection], or [OneDocument] where it fits, and hand it to projector.Main,
// which is the whole program. README.md beside this file leads through it; package projectiontest tests it without a database.
package projection

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Event is one change of one document of the watched collection, decoded from its message. Its fields and methods are those of the
// embedded [envelope.Change]. A projection reads
//
//	e.Aggregate     string     the aggregate's id, as text: the field aggregateId (the producer's AGGREGATE_ID_PATH), else the _id
//	e.Operation     Operation  insert, update, replace or delete
//	e.Type          string     the event's type: the field type (EVENT_TYPE_PATH), else the operation
//	e.Version       int64      the event's number within its aggregate: the field version (VERSION_PATH), else 0
//	e.Time          time.Time  when the change was made, by the server's clock; the zero time where the server did not say
//	e.CorrelationID string     the change's correlation id, or empty
//
//	e.Document()          bson.Raw  the document after the change; nil for a delete, and for an update whose document was deleted since
//	e.Before()            bson.Raw  the document before the change, if the collection keeps pre-images; else nil
//	e.Key()               bson.Raw  the document's key: {_id: …}, with the shard key on a sharded collection
//	e.UpdateDescription() bson.Raw  what an update changed, if the server said so; else nil
//
// What else there is (Position, Epoch, MessageID, Stream, …) is the stream's own, and `projector verify` cannot compare documents that
// depend on it or on Time: the source does not hold them.
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

// UpdateDescription is what an update changed (updatedFields, removedFields, truncatedArrays), where the server said
// so; else nil.
func (e Event) UpdateDescription() bson.Raw {
	doc, ok := e.Body.Lookup("updateDescription").DocumentOK()
	if !ok {
		return nil
	}
	return doc
}

// gone says that the document was deleted before an update of it could look it up.
func (e Event) gone() bool { return e.Body.Lookup("fullDocument").Type == bson.TypeNull }

// Projection turns events into writes. Its functions are called from many goroutines at once.
type Projection interface {
	// Name names the projection and its record of positions (collection <name>_positions). It never changes: under
	// another name the projection would start without a memory of what it has applied.
	Name() string
	// Project gives the writes of one event, in order; none when the event does not concern the projection. An error
	// made by [Permanent] (and a panic) parks the event's aggregate: the event and all later ones of it wait in the
	// dead-letter queue until they are replayed. Any other error is retried until it goes away, and holds up its
	// aggregate meanwhile.
	Project(e Event) ([]Write, error)
}

// OneDocument is a projection that keeps one document per aggregate: every write is an update or a replacement of the
// document of collection Collection() whose _id is the event's Aggregate, and nothing is ever deleted. The guard
// then lives inside that document, in the field _sluice, and a batch costs one update instead of a transaction. A
// write that breaks this promise is refused.
//
// Where the very first event of an aggregate cannot be applied there is a stub: a document that holds nothing but _id and
// _sluice {empty: true, parked: {…}}. Readers leave out documents where _sluice.empty is true, and so must a validator or a
// unique index of the collection: where the database refuses the stub, the aggregate waits until it does not. To the
// projection's writes a stub is no document.
type OneDocument interface {
	Projection
	// Collection names the collection of the documents. Like the name it never changes.
	Collection() string
}

// GuardField is the field of a [OneDocument] projection's documents that holds the guard {position, epoch, version, first, stream}, with
// streams where several feed the aggregate, and with parked {since, messageId, position, reason, description} while it is parked; a
// projection must not write to it.
const GuardField = "_sluice"

// ErrPermanent marks errors that trying again cannot heal.
var ErrPermanent = errors.New("permanent")

// Permanent says that an event can never be applied, whatever is tried. Its aggregate is parked with err's text as
// description, and the event dead-lettered; the text must hold no secrets.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

type permanent struct{ error }

func (p permanent) Unwrap() error        { return p.error }
func (p permanent) Is(target error) bool { return target == ErrPermanent }
