package apply

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// positionsCollection returns the name of the collection of the records of positions, one document
// per aggregate: {_id, position, epoch, version, first, stream}, and parked if it is parked.
func positionsCollection(p projection.Projection) string { return p.Name() + "_positions" }

// applyRecorded writes a group's effects and its record in one transaction. The record is written
// first, and only if its position is below.
func (a *Applier) applyRecorded(ctx context.Context, g *group) error {
	for conflicts := 0; len(g.events) > 0; {
		n := len(g.events)
		if g.most > 0 {
			n = min(n, g.most)
		}
		err := a.commit(ctx, g, n)
		switch Classify(err) {
		case None:
			g.committed(n, false)
		case Permanent:
			g.refused(n, ReasonRefused, err)
		case Guarded:
			progress, err := a.rebase(ctx, []*group{g})
			if err != nil {
				return err
			}
			if !progress {
				if conflicts++; conflicts > maxConflicts {
					return errContended
				}
			}
		case TooLarge:
			g.split(n, err)
		case Unknown:
			g.fails(n, err)
		case Transient:
			return err
		}
	}
	return nil
}

// applyPerAggregate writes the groups one after the other. A transient error with which the server
// answered one group does not keep those behind it from being tried: if one of them is written, it
// is a failure of the first group alone, once it has occurred twice.
func (a *Applier) applyPerAggregate(ctx context.Context, groups []*group) error {
	var failed []*group
	var last error
	for _, g := range groups {
		err := a.applyRecorded(ctx, g)
		switch {
		case err == nil:
		case ctx.Err() != nil, g.replay != nil, Code(err) == 0 && !errors.Is(err, errContended):
			return err
		default:
			failed, last = append(failed, g), err
		}
	}
	if len(failed) == len(groups) {
		return last
	}
	for _, g := range failed {
		if err := a.applyRecorded(ctx, g); err != nil {
			if ctx.Err() != nil {
				return err
			}
			g.failed = &Failure{g.events[0].index, err}
		}
	}
	return nil
}

// commit writes the first n events of a group.
func (a *Applier) commit(ctx context.Context, g *group, n int) error {
	writes := g.writes(n)
	if n > 1 {
		var err error
		if writes, err = compact(writes); err != nil {
			return err
		}
	}
	if len(writes) == 0 {
		return a.writeRecords(ctx, a.recordOf(g, n))
	}
	return a.transact(ctx, func(ctx context.Context) error {
		if err := a.writeRecords(ctx, a.recordOf(g, n)); err != nil {
			return err
		}
		return a.effect(ctx, writes)
	})
}

// recordOf returns the conditional update of the record of a group whose first n events are
// applied.
func (a *Applier) recordOf(g *group, n int) mongo.WriteModel {
	return a.conditional(g, n, nil, g.creates(n))
}

// writeRecords writes records, each of which names one document, in order. Errors: errGuard if any
// of the conditions does not hold.
func (a *Applier) writeRecords(ctx context.Context, records ...mongo.WriteModel) error {
	written, err := a.guards.collection.BulkWrite(ctx, records, options.BulkWrite().SetOrdered(true))
	switch {
	case Classify(err) == Guarded:
		return errGuard
	case err != nil:
		return fmt.Errorf("write %s: %w", a.guards.collection.Name(), err)
	case written.MatchedCount+written.UpsertedCount < int64(len(records)):
		return errGuard
	}
	return nil
}

// effect executes writes in order, each run of one collection as one ordered bulk write.
func (a *Applier) effect(ctx context.Context, writes []projection.Write) error {
	for len(writes) > 0 {
		name, _ := writes[0].Target()
		var models []mongo.WriteModel
		for len(writes) > 0 {
			if collection, _ := writes[0].Target(); collection != name {
				break
			}
			models = append(models, writeModel(writes[0]))
			writes = writes[1:]
		}
		_, err := a.database.Collection(name).BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
		if err == nil {
			continue
		}
		if Classify(err) == Guarded {
			// No guard is in these writes. Two transactions created the same document at once: one
			// of them starts again.
			err = errors.Join(errRaced, err)
		}
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writeModel returns a write in the driver's form. The id is a value, even if it has the form of a
// query.
func writeModel(w projection.Write) mongo.WriteModel {
	_, id := w.Target()
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}}
	switch w := w.(type) {
	case projection.UpdateOne:
		return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(updateOf(w.Ops)).SetUpsert(w.Upsert)
	case projection.ReplaceOne:
		if changedByServers(w.Document) {
			return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(literally(w.Document)).SetUpsert(true)
		}
		return mongo.NewReplaceOneModel().SetFilter(filter).SetReplacement(w.Document).SetUpsert(true)
	case projection.DeleteOne:
		filter = append(filter, projection.Filter(w.If)...)
	}
	return mongo.NewDeleteOneModel().SetFilter(filter)
}
