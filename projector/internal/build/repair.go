package build

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// Repairer replaces single aggregates of a read model by what their source holds.
type Repairer struct {
	*Builder
	uuid bson.Binary
	// copies is the collection of a mirror by _id; empty for any other projection.
	copies string
}

// Repairer returns a repairer, or why aggregates of this read model cannot be repaired: the same
// as of a build, except that a mirror by _id is repaired from documents that change.
func (b *Builder) Repairer(ctx context.Context) (*Repairer, error) {
	r := &Repairer{Builder: b}
	operations := string(envelope.Insert)
	if copies, mirror := projection.CopiesByID(b.Projection); mirror {
		if b.Source.AggregatePath != "_id" {
			return nil, errors.New("an aggregate of a mirror can be repaired only if it is one document: with AGGREGATE_ID_PATH=_id")
		}
		r.copies = copies
		operations = string(envelope.Insert + "," + envelope.Update + "," + envelope.Replace + "," + envelope.Delete)
		b.Stream.Operations = sorted(b.Stream.Operations, operations)
	}
	if err := b.Stream.check(b.Source, operations); err != nil {
		return nil, err
	}
	switch s, err := Read(ctx, b.ReadModel, b.Projection); {
	case err != nil:
		return nil, err
	case s == nil && projection.VersionOf(b.Projection) > 1, s != nil && s.State != Done:
		return nil, errors.New("the build of the read model has not ended: run build, which also retries the aggregates that failed")
	}
	var err error
	r.uuid, err = b.examine(ctx)
	return r, err
}

// sorted returns the operations of a stream in the order of these, if they are the same.
func sorted(operations, like string) string {
	own, wanted := strings.Split(operations, ","), strings.Split(like, ",")
	slices.Sort(own)
	slices.Sort(wanted)
	if slices.Equal(own, wanted) {
		return like
	}
	return operations
}

// Holds reports whether the source has a document of an aggregate.
func (r *Repairer) Holds(ctx context.Context, aggregate string) (bool, error) {
	found, err := r.fold(ctx, r.Source.Collection, aggregate)
	return found != nil && found.events > 0, err
}

// Repair replaces the effects of a parked aggregate, as it was seen before, by what the source
// holds. What passes, such as a database that is away, is waited out. Errors: those of
// [apply.Applier.Repair], and a document that the projection refuses.
func (r *Repairer) Repair(ctx context.Context, seen apply.Aggregate) error {
	for n := 1; ; n++ {
		began := time.Now()
		err := r.persist(ctx, func() error { return r.repair(ctx, seen) })
		if !errors.Is(err, errTooOld) {
			return err
		}
		if n == attempts {
			return tooLong(time.Since(began), err)
		}
		if err := retry.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (r *Repairer) repair(ctx context.Context, seen apply.Aggregate) error {
	at, err := mongodb.ConfirmedTime(ctx, r.Source.Collection)
	if err != nil {
		return err
	}
	var found *fold
	err = r.asOf(ctx, at, func(ctx context.Context) (err error) {
		found, err = r.fold(ctx, r.plain(), seen.Name)
		return err
	})
	if err != nil {
		return err
	}
	switch now, _, err := r.collection(ctx); {
	case err != nil:
		return err
	case !now.Equal(r.uuid):
		return fmt.Errorf("%s was replaced by another collection while it was read", r.Source)
	case found.built.Failed != nil:
		return fmt.Errorf("the projection refuses a document: %w. Correct the projection, or leave the document out with --skip-event", found.built.Failed)
	}
	if r.copies != "" {
		found.built.Version = 0 // the guard counts inserts, and the document's version may be that of an update
		found.built.Copies = apply.Copies{Collection: r.copies, IDs: idsOf(seen.Name)}
	}
	return r.Applier.Repair(ctx, seen, apply.Build{Stream: r.Stream.Name, Position: boundary(at)}, &found.built)
}

// fold folds the documents of an aggregate in their order.
func (r *Repairer) fold(ctx context.Context, from *mongo.Collection, name string) (*fold, error) {
	order := bson.D{}
	if r.Source.VersionPath != "" {
		order = append(order, bson.E{Key: r.Source.VersionPath, Value: 1})
	}
	cursor, err := from.Find(ctx, r.Source.filter(name), options.Find().SetSort(append(order, bson.E{Key: "_id", Value: 1})).SetAllowDiskUse(true))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.Source, err)
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	state := newFold(r.Projection, name)
	for cursor.Next(ctx) {
		c, other := r.Source.inserts(cursor.Current)
		if c.Aggregate != name {
			continue
		}
		c.Stream, other.Stream = r.Stream.Name, r.Stream.Name
		if !state.follows(c) || r.Skip[documentText(cursor.Current)] {
			continue
		}
		if err := state.add(r.Projection, c, other); err != nil {
			return nil, err
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.Source, err)
	}
	state.end()
	return state, nil
}
