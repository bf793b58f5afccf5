package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ErrMoved means that more events of a parked aggregate were dead-lettered in the meantime: apply
// them before unparking it.
var ErrMoved = errors.New("more events of the aggregate were dead-lettered meanwhile")

// Replay determines how the events of a parked aggregate are applied.
type Replay struct {
	Aggregate string
	// ID is the id of the record; if the aggregate is parked by another one, the error is
	// [ErrNotParked].
	ID bson.ObjectID
	// Skip is the message id of an event that must have no effect: only the guard moves past it.
	Skip string
	// Past is one gap of versions that the operator accepts; every other gap still stops the
	// replay.
	Past Past
}

// Past is a gap of versions that an operator accepts: the message id of the event behind the gap,
// and how many versions may be missing; 0: any number.
type Past struct {
	Before string
	Most   int64
}

// before returns how many versions may be missing before a change.
func (p Past) before(c *envelope.Change) int64 {
	if p.Before == "" || c.MessageID != p.Before {
		return 0
	}
	return cmp.Or(p.Most, c.Version)
}

// Replay writes the effects of changes of a parked aggregate, as [Applier.Apply] does, and leaves
// it parked. A change that is poison or behind a gap ends it: what follows stays pending. Errors:
// [ErrNotParked], and those that may be retried.
func (a *Applier) Replay(ctx context.Context, r Replay, changes []envelope.Change, results []Result) error {
	t := Attempt{PerAggregate: true, skip: r.Skip, past: r.Past}
	groups, decided, failures := a.plan(ctx, t, changes, results)
	record(results, decided)
	if len(groups) > 0 {
		found, err := a.guards.read(ctx, r.Aggregate)
		if err != nil {
			return err
		}
		s := found[r.Aggregate]
		if s.Parked == nil || s.Parked.ID != r.ID {
			return ErrNotParked
		}
		for _, g := range groups {
			seen := s.Of(g.stream)
			g.replay, g.guardSlot, g.shared, g.stub = &s, s.slot(g.stream), len(s.Streams) > 0, s.empty
			g.dropApplied(seen.Position, seen)
			g.stopAtGap(seen)
		}
		failed, err := a.write(ctx, t, groups, results)
		if err != nil {
			return fmt.Errorf("replay events of %s: %w", r.Aggregate, err)
		}
		failures = append(failures, failed...)
	}
	if len(failures) > 0 {
		return failures[0].Err
	}
	return nil
}

// Park parks an aggregate that is not parked, because of an event that the broker dead-lettered;
// session is that of the event. If the aggregate is parked by now, or the event is applied, it does
// nothing.
func (a *Applier) Park(ctx context.Context, session string, c *envelope.Change, reason Result) error {
	_, err := a.park(ctx, session, c, decision{result: reason}, nil)
	return err
}

// ErrParked means that the aggregate is parked already.
var ErrParked = errors.New("the aggregate is parked already")

// ParkByOperator parks an aggregate without an event, with a description. It needs no session: a
// projector's next write of the aggregate fails on the record, and the events are set aside.
// Errors: [ErrParked].
func (a *Applier) ParkByOperator(ctx context.Context, aggregate, description string) error {
	r := Record{ID: bson.NewObjectID(), Since: time.Now().UTC(), Reason: ReasonOperator, Description: description}
	for range maxConflicts {
		err := a.writeRecord(ctx, &envelope.Change{Aggregate: aggregate}, r, guardSlot{})
		if Classify(err) != Guarded { // also without an error
			return err
		}
		if _, err := a.Parked(ctx, aggregate); err == nil {
			return ErrParked
		} else if !errors.Is(err, ErrNotParked) {
			return err
		}
	}
	return errContended
}

// Unpark ends a parking, if nothing was set aside since the fence was read. Errors: [ErrMoved],
// [ErrNotParked].
func (a *Applier) Unpark(ctx context.Context, aggregate string, f Fence) error {
	filter := append(bson.D{{Key: "_id", Value: aggregate}}, a.guards.fenced(f)...)
	if a.guards.inside {
		// A stub that has no position held nothing but the record.
		deleted, err := a.guards.collection.DeleteOne(ctx, append(slices.Clip(filter),
			bson.E{Key: a.guards.prefix + guardEmpty, Value: true},
			bson.E{Key: a.guards.prefix + guardPosition, Value: ""},
			bson.E{Key: a.guards.prefix + guardStreams, Value: bson.D{{Key: "$exists", Value: false}}},
		))
		if err != nil {
			return fmt.Errorf("unpark %s: %w", aggregate, err)
		}
		if deleted.DeletedCount == 1 {
			return nil
		}
	}
	updated, err := a.guards.collection.UpdateOne(ctx, filter, bson.D{
		{Key: "$unset", Value: bson.D{{Key: a.guards.prefix + guardParked, Value: ""}}},
	})
	if err != nil {
		return fmt.Errorf("unpark %s: %w", aggregate, err)
	}
	if updated.MatchedCount == 1 {
		return nil
	}
	return a.moved(ctx, aggregate, f)
}

// Amend records that another event keeps the aggregate parked, or the same event for another
// reason. Errors: [ErrNotParked].
func (a *Applier) Amend(ctx context.Context, aggregate string, id bson.ObjectID, c envelope.Change, r Result) error {
	parked := a.guards.prefix + guardParked
	updated, err := a.guards.collection.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: aggregate}, {Key: parked + ".id", Value: id}},
		bson.D{{Key: "$set", Value: bson.D{
			{Key: parked + ".messageId", Value: c.MessageID},
			{Key: parked + ".stream", Value: c.Stream},
			{Key: parked + ".position", Value: c.Position},
			{Key: parked + ".reason", Value: r.Reason},
			{Key: parked + ".description", Value: r.Description},
		}}})
	if err != nil {
		return fmt.Errorf("amend parked record of %s: %w", aggregate, err)
	}
	if updated.MatchedCount == 0 {
		return ErrNotParked
	}
	return nil
}
