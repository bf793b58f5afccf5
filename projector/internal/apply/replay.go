package apply

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ErrMoved is a parked aggregate of which more events were dead-lettered meanwhile: apply them before unparking it.
var ErrMoved = errors.New("more events of the aggregate were dead-lettered meanwhile")

// Replay is how the events of a parked aggregate are applied.
type Replay struct {
	Aggregate string
	// ID is of the record; a parking with another one is [ErrNotParked].
	ID bson.ObjectID
	// Skip is the message id of an event that is to have no effect: the guard moves past it, and that is all.
	Skip string
	// Unjudged passes over versions that are missing.
	Unjudged bool
}

// Replay writes the effects of changes of a parked aggregate, as [Applier.Apply] does, and leaves it parked. A change that
// is poison or behind a gap ends it: what follows stays pending. Errors: [ErrNotParked], and those that may be retried.
func (a *Applier) Replay(ctx context.Context, r Replay, changes []envelope.Change, results []Result) error {
	applier := *a
	applier.skip = r.Skip
	applier.unjudged = a.unjudged || r.Unjudged
	groups, decided, failures := applier.plan(Attempt{}, changes, results)
	record(results, decided)
	if len(groups) > 0 {
		found, err := a.guards.read(ctx, r.Aggregate)
		if err != nil {
			return err
		}
		s := found[r.Aggregate]
		if s.parked == nil || s.parked.ID != r.ID {
			return ErrNotParked
		}
		for _, g := range groups {
			seen := s.of(g.stream)
			g.replay, g.place, g.shared = &s, s.place(g.stream), len(s.guests) > 0
			g.dropApplied(seen.position)
			g.stopAtGap(seen)
		}
		err = applier.write(ctx, Attempt{Apart: true}, groups)
		for _, g := range groups {
			record(results, g.decided)
			if g.failed != nil {
				failures = append(failures, *g.failed)
			}
		}
		if err != nil {
			return fmt.Errorf("replay events of %s: %w", r.Aggregate, err)
		}
	}
	if len(failures) > 0 {
		return failures[0].Err
	}
	return nil
}

// Park parks an aggregate that is not parked, because of an event of it in the dead-letter queue that the broker put there; session is
// that of the event. Where somebody has parked it meanwhile, or could apply the event, it does nothing.
func (a *Applier) Park(ctx context.Context, session string, c *envelope.Change, reason Result) error {
	_, err := a.park(ctx, session, c, decision{result: reason}, nil)
	return err
}

// Unpark ends a parking, where nothing was set aside since the fence was read. Errors: [ErrMoved], [ErrNotParked].
func (a *Applier) Unpark(ctx context.Context, aggregate string, f Fence) error {
	filter := append(bson.D{{Key: "_id", Value: aggregate}}, a.guards.fenced(f)...)
	if a.guards.inside {
		// A stub held nothing but the record.
		deleted, err := a.guards.collection.DeleteOne(ctx, append(filter, bson.E{Key: a.guards.prefix + guardEmpty, Value: true}))
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
	now, err := a.Parked(ctx, aggregate)
	switch {
	case err != nil:
		return err
	case now.ID != f.ID:
		return ErrNotParked
	}
	return ErrMoved
}

// Amend says that another event keeps the aggregate parked, or the same for another reason. Errors: [ErrNotParked].
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
