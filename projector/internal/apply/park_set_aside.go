package apply

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// An event of a pack cannot be dead-lettered alone. If its aggregate is parked, the message that
// would carry it alone is copied to a collection of the read model, and the pack is completed. To
// everything else a copy is a dead letter. A copy that is written late does no harm: the guard of
// its aggregate proves that it is applied.

// ParkedCollection returns the name of the collection of the events of packs that are set aside.
func ParkedCollection(p projection.Projection) string { return p.Name() + "_parked" }

// SetAsideEvent is an event of a pack that is set aside.
type SetAsideEvent struct {
	Change              envelope.Change
	Message             *azservicebus.ReceivedMessage // that would carry the event alone
	Reason, Description string
}

// asideID identifies an event that is set aside.
type asideID struct {
	Aggregate string `bson:"aggregate"`
	Stream    string `bson:"stream"`
	Position  string `bson:"position"`
	MessageID string `bson:"messageId"`
}

// aside is an event that is set aside, as it is stored.
type aside struct {
	ID            asideID   `bson:"_id"`
	Since         time.Time `bson:"since"`
	Reason        string    `bson:"reason"`
	Description   string    `bson:"description"`
	Session       string    `bson:"session"`
	Sequence      int64     `bson:"sequence"` // of the pack
	Arrived       int64     `bson:"arrived"`  // the sequence number that the pack had first
	MessageID     string    `bson:"messageId"`
	ContentType   string    `bson:"contentType"`
	CorrelationID string    `bson:"correlationId,omitempty"`
	Properties    bson.M    `bson:"properties"`
	Body          []byte    `bson:"body,omitempty"`
}

// Aside is an event that is set aside.
type Aside struct {
	ID      string // of the copy
	Message *azservicebus.ReceivedMessage
}

// SetAside copies events. It may be repeated: a copy stays as it is if its event comes again, whose
// reason would be another one. A copy of an event that could not be read is one of its own.
func (a *Applier) SetAside(ctx context.Context, events []SetAsideEvent) error {
	models := make([]mongo.WriteModel, 0, len(events))
	for _, e := range events {
		m := e.Message
		kept := aside{
			ID:    asideID{e.Change.Aggregate, e.Change.Stream, e.Change.Position, m.MessageID},
			Since: time.Now().UTC(), Reason: e.Reason, Description: e.Description, MessageID: m.MessageID, Properties: m.ApplicationProperties, Body: m.Body,
			Session: *cmp.Or(m.SessionID, new("")), ContentType: *cmp.Or(m.ContentType, new("")), CorrelationID: *cmp.Or(m.CorrelationID, new("")),
		}
		if m.SequenceNumber != nil {
			kept.Sequence, kept.Arrived = *m.SequenceNumber, Arrival(m)
		}
		models = append(models, mongo.NewUpdateOneModel().SetUpsert(true).
			SetFilter(bson.D{{Key: "_id", Value: kept.ID}}).SetUpdate(bson.D{{Key: "$setOnInsert", Value: kept}}))
	}
	if len(models) == 0 {
		return nil
	}
	into := a.database.Collection(ParkedCollection(a.projection))
	if _, err := into.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)); err != nil {
		return fmt.Errorf("write %s: %w", into.Name(), err)
	}
	return nil
}

// Arrival returns the sequence number that a message had first. A dead letter has another number
// than its message had before, and this one orders the two.
func Arrival(m *azservicebus.ReceivedMessage) int64 {
	if m.EnqueuedSequenceNumber != nil {
		return *m.EnqueuedSequenceNumber
	}
	return *m.SequenceNumber
}

// Asides calls f with the events that are set aside, in the order in which they came, with or
// without their bodies. If ids are given, it is called with those alone.
func (a *Applier) Asides(ctx context.Context, bodies bool, ids []string, f func(Aside)) error {
	from := a.database.Collection(ParkedCollection(a.projection))
	find, filter := options.Find().SetSort(bson.D{{Key: "arrived", Value: 1}, {Key: "_id.position", Value: 1}}), bson.D{}
	if !bodies {
		find.SetProjection(bson.D{{Key: "body", Value: 0}})
	}
	if ids != nil {
		filter = bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: rawIDs(ids)}}}}
	}
	cursor, err := from.Find(ctx, filter, find)
	if err != nil {
		return fmt.Errorf("read %s: %w", from.Name(), err)
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	for cursor.Next(ctx) {
		var kept aside
		if err := cursor.Decode(&kept); err != nil {
			return fmt.Errorf("read %s: %w", from.Name(), err)
		}
		id, err := bson.Marshal(kept.ID)
		if err != nil {
			return fmt.Errorf("read %s: %w", from.Name(), err)
		}
		m := &azservicebus.ReceivedMessage{
			MessageID: kept.MessageID, SessionID: &kept.Session, SequenceNumber: &kept.Sequence, EnqueuedSequenceNumber: &kept.Arrived,
			ApplicationProperties: kept.Properties, Body: kept.Body,
			DeadLetterReason: &kept.Reason, DeadLetterErrorDescription: &kept.Description,
		}
		if kept.ContentType != "" {
			m.ContentType = &kept.ContentType
		}
		if kept.CorrelationID != "" {
			m.CorrelationID = &kept.CorrelationID
		}
		f(Aside{string(id), m})
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read %s: %w", from.Name(), err)
	}
	return nil
}

// RemoveAsides removes copies, and returns how many there were.
func (a *Applier) RemoveAsides(ctx context.Context, ids []string) (removed int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	from := a.database.Collection(ParkedCollection(a.projection))
	result, err := from.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: rawIDs(ids)}}}})
	if err != nil {
		return 0, fmt.Errorf("remove from %s: %w", from.Name(), err)
	}
	return int(result.DeletedCount), nil
}

func rawIDs(ids []string) bson.A {
	raw := make(bson.A, len(ids))
	for i, id := range ids {
		raw[i] = bson.Raw(id)
	}
	return raw
}
