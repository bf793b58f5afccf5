package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// Record is the reason why an aggregate is parked. It is part of the aggregate's guard: `parked` of
// the record of positions, or `_sluice.parked` of a [projection.OneDocument]'s document.
type Record struct {
	// ID identifies this parking: an aggregate that is parked again gets another.
	ID    bson.ObjectID `bson:"id"`
	Since time.Time     `bson:"since"`
	// MessageID is the id of the event that could not be applied; empty if its message had none.
	MessageID string `bson:"messageId"`
	// Stream is that event's stream, with whose positions its own can be compared; empty if its
	// message did not name one, or the record is older than this field.
	Stream string `bson:"stream,omitempty"`
	// Position is that event's position; empty if its message had none.
	Position    string `bson:"position"`
	Reason      string `bson:"reason"`
	Description string `bson:"description"`
	// Session is the session in which the event came; empty if an operator parked the aggregate.
	// Sessions are the others in which events were set aside.
	Session  string   `bson:"session"`
	Sessions []string `bson:"sessions,omitempty"`
	// Later grows before events are dead-lettered behind the first one, by at least their number.
	// An unparking that rests on an older number is refused. See [Fence].
	Later int64 `bson:"later"`
}

// Fence is the condition of an unparking: this parking, and no event dead-lettered behind it since
// the fence was read.
type Fence struct {
	ID    bson.ObjectID
	Later int64
}

// Fence returns the record's fence.
func (r *Record) Fence() Fence { return Fence{ID: r.ID, Later: r.Later} }

// errNoStub means that the rules of the database refuse the record of a parking. Without the
// record, later events would overtake the poison, so the aggregate waits until the rules are
// changed.
var errNoStub = errors.New("an event can never be applied, and the database refuses the record that parks its aggregate: let the " +
	"collection's validator and unique indexes leave out documents where " + projection.GuardField + "." + guardEmpty + " is true")

// errFull means that an aggregate's document has no room for the record of its parking. The
// aggregate waits until something is removed from the document.
var errFull = errors.New("an event can never be applied, and the document of its aggregate has no room for the record that parks it: take " +
	"something out of the document")

// fenced returns the condition that an aggregate is parked by the record of a fence.
func (g guards) fenced(f Fence) bson.D {
	return bson.D{
		{Key: g.prefix + guardParked + ".id", Value: f.ID},
		{Key: g.prefix + guardParked + ".later", Value: f.Later},
	}
}

// parkPoisoned parks the aggregate of every poison in the batch, together with the later events of
// that aggregate, and sets their results, also before an error. Poison that names no aggregate is
// unchanged, as is poison behind a change of its aggregate that may still be applied, and poison of
// a skipped aggregate, of which there may be such changes elsewhere: it parks once those are
// decided. The failures are poison whose aggregate cannot be parked: only that aggregate waits.
func (a *Applier) parkPoisoned(
	ctx context.Context, session string, leave map[string]bool, changes []envelope.Change, results []Result,
) (failures []Failure, err error) {
	open := make(map[string]bool)
	for i := range changes {
		c := &changes[i]
		if results[i].Kind == Pending || results[i].Kind == Gap {
			open[c.Aggregate] = true
		}
		if results[i].Kind != Poison || results[i].Recorded || c.Aggregate != "" && (open[c.Aggregate] || leave[c.Aggregate]) {
			continue
		}
		if c.Aggregate == "" {
			results[i].Recorded = true
			continue
		}
		var behind []decision
		for j := i + 1; j < len(changes); j++ {
			if changes[j].Aggregate == c.Aggregate && (results[j].Kind == Pending || results[j].Kind == Poison) {
				behind = append(behind, decision{j, results[j]})
			}
		}
		parked, err := a.park(ctx, session, c, decision{i, results[i]}, behind)
		record(results, parked)
		switch {
		case errors.Is(err, errNoStub), errors.Is(err, errFull):
			failures = append(failures, Failure{i, fmt.Errorf("park aggregate: %w", err)})
			open[c.Aggregate] = true
		case err != nil:
			return failures, fmt.Errorf("park aggregate: %w", err)
		}
	}
	return failures, nil
}

// park commits that the aggregate of a poison is parked, unless that is no longer true, and decides
// it and the events behind it.
func (a *Applier) park(
	ctx context.Context, session string, c *envelope.Change, poisoned decision, behind []decision,
) ([]decision, error) {
	r := Record{
		ID: bson.NewObjectID(), Since: time.Now().UTC(), MessageID: c.MessageID, Stream: c.Stream, Position: c.Position,
		Reason: poisoned.result.Reason, Description: poisoned.result.Description, Session: session, Later: int64(len(behind)),
	}
	slot := guardSlot{stream: c.Stream}
	for range maxConflicts {
		err := a.writeRecord(ctx, c, r, slot)
		if err == nil {
			poisoned.result.Recorded = true
			return append(parkedBehind(&r, behind), poisoned), nil
		}
		if Classify(err) != Guarded {
			return nil, err
		}
		found, err := a.guards.read(ctx, c.Aggregate)
		if err != nil {
			return nil, err
		}
		s := found[c.Aggregate].Of(c.Stream)
		switch {
		case c.Position != "" && s.Position >= c.Position && r.Reason != ReasonOvertaken:
			return []decision{{poisoned.index, Result{Kind: Duplicate}}}, nil // another projector could apply it
		case s.Parked != nil:
			counted, err := a.countSetAside(ctx, c.Aggregate, s.Parked, session, 1+len(behind))
			if err != nil {
				return nil, err
			}
			if !counted {
				continue
			}
			if s.Parked.Of(c) {
				poisoned.result = poisonAgain(s.Parked)
				return append(parkedBehind(s.Parked, behind), poisoned), nil
			}
			return parkedBehind(s.Parked, append([]decision{poisoned}, behind...)), nil
		case r.Reason == ReasonVersionGap && s.Version >= c.Version-1:
			return []decision{{poisoned.index, Result{}}}, nil // the missing version has arrived
		}
		slot = found[c.Aggregate].slot(c.Stream)
	}
	return nil, errContended
}

// writeRecord writes the record of a parking, unless the aggregate is parked or the poison is
// applied. If there is no guard, it creates one. Errors: of the class [Guarded], errNoStub,
// errFull, and those of the database.
func (a *Applier) writeRecord(ctx context.Context, c *envelope.Change, r Record, slot guardSlot) error {
	at := a.guards.at(slot)
	filter := bson.D{{Key: "_id", Value: c.Aggregate}, {Key: a.guards.prefix + guardParked, Value: bson.D{{Key: "$exists", Value: false}}}}
	switch {
	case r.Reason == ReasonOvertaken: // wherever the guard is
	case slot.unguarded:
		filter = append(append(filter, a.guards.owned(slot)...), bson.E{Key: at + guardPosition, Value: bson.D{{Key: "$exists", Value: false}}})
	case c.Position != "":
		filter = append(append(filter, a.guards.owned(slot)...), bson.E{Key: at + guardPosition, Value: bson.D{{Key: "$lt", Value: c.Position}}})
	}
	if r.Reason == ReasonVersionGap {
		filter = append(filter, bson.E{Key: at + guardVersion, Value: bson.D{
			{Key: "$not", Value: bson.D{{Key: "$gte", Value: c.Version - 1}}},
		}})
	}
	made := bson.D{{Key: a.guards.prefix + guardPosition, Value: ""}}
	if a.guards.inside {
		made = append(made, bson.E{Key: a.guards.prefix + guardEmpty, Value: true})
	}
	_, err := a.guards.collection.UpdateOne(ctx, filter, bson.D{
		{Key: "$set", Value: bson.D{{Key: a.guards.prefix + guardParked, Value: r}}},
		{Key: "$setOnInsert", Value: made},
	}, options.UpdateOne().SetUpsert(true))
	if err == nil {
		return nil
	}
	if Classify(err) == Permanent && a.guards.inside {
		refused := errNoStub
		if code := Code(err); code == mongodb.BSONObjectTooLarge || code == mongodb.ResultingDocumentTooLarge {
			refused = errFull
		}
		err = fmt.Errorf("%w: %w", refused, err)
	}
	return fmt.Errorf("write %s: %w", a.guards.collection.Name(), err)
}

// countSetAside raises the record's count before n events of a session are set aside, and notes the
// session; false if the aggregate is no longer parked by this record.
func (a *Applier) countSetAside(ctx context.Context, aggregate string, r *Record, session string, n int) (counted bool, err error) {
	at := a.guards.prefix + guardParked
	update := bson.D{{Key: "$inc", Value: bson.D{{Key: at + ".later", Value: int64(n)}}}}
	if session != r.Session {
		update = append(update, bson.E{Key: "$addToSet", Value: bson.D{{Key: at + ".sessions", Value: session}}})
	}
	result, err := a.guards.collection.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: aggregate}, {Key: at + ".id", Value: r.ID}}, update)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", a.guards.collection.Name(), err)
	}
	return result.MatchedCount == 1, nil
}

// parkedBehind decides events that are parked behind the record's.
func parkedBehind(r *Record, behind []decision) (decided []decision) {
	for _, d := range behind {
		description := fmt.Sprintf("the aggregate is parked since %s, because of message %s: %s",
			r.Since.UTC().Format(time.RFC3339), r.MessageID, r.Reason)
		if d.result.Kind == Poison && d.result.Reason != ReasonDeliveries {
			description = fmt.Sprintf("%s. This event has a problem of its own: %s: %s", description, d.result.Reason, d.result.Description)
		}
		decided = append(decided, decision{d.index, Result{Kind: Parked, Reason: ReasonParked, Description: description}})
	}
	return decided
}

// Of reports whether the record is that of this event: by its message, or by its position, if it
// was published again in a later generation.
func (r *Record) Of(c *envelope.Change) bool {
	if c.MessageID != "" && c.MessageID == r.MessageID {
		return true
	}
	return c.Position != "" && c.Position == r.Position && (r.Stream == "" || c.Stream == r.Stream)
}

// poisonAgain returns the result of an event that is delivered again after it has parked its
// aggregate.
func poisonAgain(r *Record) Result {
	return Result{Kind: Poison, Reason: r.Reason, Description: r.Description, Recorded: true}
}

// setAside handles a group whose aggregate turned out to be parked: its remaining events are
// dead-lettered behind the one that parked it. It returns false if the aggregate is no longer
// parked by this record.
func (a *Applier) setAside(ctx context.Context, g *group, r *Record) (counted bool, err error) {
	counted, err = a.countSetAside(ctx, g.aggregate, r, g.session, len(g.events))
	if err != nil || !counted {
		return false, err
	}
	for _, e := range g.events {
		if r.Of(e.change) {
			g.decide(e, poisonAgain(r))
		} else {
			g.decided = append(g.decided, parkedBehind(r, []decision{{index: e.index}})...)
		}
	}
	g.events = nil
	return true, nil
}
