package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection"
)

var (
	// ErrNotReplaceable means that the effects of an aggregate are in documents that other
	// aggregates may write to as well.
	ErrNotReplaceable = errors.New("the effects of one aggregate cannot be replaced: the projection is neither a OneDocument nor a mirror by _id. " +
		"Build a new version of it")
	// ErrSeveralStreams means that another stream feeds the aggregate as well.
	ErrSeveralStreams = errors.New("another stream feeds the aggregate, too, and its events are not in this source: build a new version of the projection")
	// ErrSourceBehind means that the source is older than what was applied.
	ErrSourceBehind = errors.New("the source's time is before the last event applied: SOURCE_MONGODB_URI names another cluster, or an old copy")
)

// Repair replaces the effects of a parked aggregate with what a source contained at a position,
// with a guard that lets later events pass, and leaves the aggregate parked. seen is the aggregate
// as it was before the source was read. Errors, with which nothing is written: [ErrMoved] and
// [ErrNotParked] if the aggregate has changed since; [ErrNotReplaceable], [ErrSeveralStreams],
// [ErrSourceBehind], and those of the database.
func (a *Applier) Repair(ctx context.Context, seen Aggregate, b Build, one *Built) error {
	switch {
	case len(seen.Guard.Streams) > 0, seen.Guard.Stream != "" && seen.Guard.Stream != b.Stream:
		return ErrSeveralStreams
	case seen.Guard.Position > b.Position:
		return ErrSourceBehind
	}
	// A guard without a position may lack the field.
	position := bson.D{{Key: "$in", Value: bson.A{seen.Guard.Position}}}
	if seen.Guard.Position == "" {
		position = bson.D{{Key: "$in", Value: bson.A{"", nil}}}
	}
	filter := append(bson.D{{Key: "_id", Value: one.Aggregate}, {Key: a.guards.prefix + guardPosition, Value: position}}, a.guards.fenced(seen.Fence())...)
	replace := a.repairDocument
	if !a.guards.inside {
		replace = a.repairRecord
	}
	err := replace(ctx, filter, seen, b, one)
	if errors.Is(err, errGuard) {
		return a.moved(ctx, one.Aggregate, seen.Fence())
	}
	if err != nil {
		return fmt.Errorf("repair %s: %w", one.Aggregate, err)
	}
	return nil
}

// repairDocument replaces a document with its guard inside.
func (a *Applier) repairDocument(ctx context.Context, filter bson.D, seen Aggregate, b Build, one *Built) error {
	guard := append(guardAt(b, one), bson.E{Key: guardParked, Value: seen.Record})
	document := bson.D{{Key: "_id", Value: one.Aggregate}}
	if one.Document == nil {
		guard = append(guard, bson.E{Key: guardEmpty, Value: true})
	} else {
		document = append(document, slices.DeleteFunc(slices.Clone(one.Document), func(e bson.E) bool { return e.Key == "_id" })...)
	}
	raw, err := bson.Marshal(append(document, bson.E{Key: projection.GuardField, Value: guard}))
	if err != nil {
		return fmt.Errorf("write the document as BSON: %w", err)
	}
	var model mongo.WriteModel = mongo.NewReplaceOneModel().SetFilter(filter).SetReplacement(bson.Raw(raw))
	if changedByServers(raw) {
		model = mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(literally(bson.Raw(raw)))
	}
	return a.writeRecords(ctx, model)
}

// repairRecord writes the record of an aggregate together with its effects. The aggregate could not
// be built before, and so has no effects, or it is a mirror's, whose copies are replaced.
func (a *Applier) repairRecord(ctx context.Context, filter bson.D, seen Aggregate, b Build, one *Built) error {
	unbuilt := seen.Reason == ReasonBuild && seen.Guard.Position == ""
	if !unbuilt && one.Copies.Collection == "" {
		return ErrNotReplaceable
	}
	update := bson.D{{Key: "$set", Value: guardAt(b, one)}}
	if one.Version == 0 {
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: guardVersion, Value: ""}, {Key: guardFirst, Value: ""}}})
	}
	return a.transact(ctx, func(ctx context.Context) error {
		if err := a.writeRecords(ctx, mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(update)); err != nil {
			return err
		}
		if c := one.Copies; c.Collection != "" && len(c.IDs) > 0 {
			if _, err := a.database.Collection(c.Collection).DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: c.IDs}}}}); err != nil {
				return fmt.Errorf("write %s: %w", c.Collection, err)
			}
		}
		return a.effect(ctx, one.Writes)
	})
}

// guardAt returns the guard of an aggregate that was read at a position of its source.
func guardAt(b Build, one *Built) bson.D {
	guard := bson.D{{Key: guardPosition, Value: b.Position}, {Key: guardEpoch, Value: int64(0)}, {Key: guardStream, Value: b.Stream}}
	if one.Version > 0 {
		guard = append(guard, bson.E{Key: guardVersion, Value: one.Version}, bson.E{Key: guardFirst, Value: one.First})
	}
	return guard
}

// moved returns why an aggregate is no longer as a fence found it: [ErrMoved] or [ErrNotParked].
func (a *Applier) moved(ctx context.Context, aggregate string, f Fence) error {
	now, err := a.Parked(ctx, aggregate)
	switch {
	case err != nil:
		return err
	case now.ID != f.ID:
		return ErrNotParked
	}
	return ErrMoved
}
