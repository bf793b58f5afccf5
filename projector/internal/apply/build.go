package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Built is one aggregate as a build found it in the source.
type Built struct {
	Aggregate string
	// Document is the aggregate's document of a [projection.OneDocument]; nil if its events had no
	// effect.
	Document bson.D
	// Writes are those of the aggregate's events, in order, of any other projection.
	Writes []projection.Write
	// Version is that of the last event, and First the version from which none is missing; 0 if
	// events have no version.
	Version, First int64
	// Copies are the documents that a mirror may hold of the aggregate; a repair replaces them.
	Copies Copies
	// Failed is the reason why the aggregate cannot be built; nil if it can. [Applier.Build] sets
	// it if the database refuses the aggregate.
	Failed error
}

// Copies are documents of a mirror.
type Copies struct {
	Collection string // empty: the projection is not a mirror by _id
	IDs        bson.A
}

// Build is the common part of the guards that one chunk of a build writes.
type Build struct {
	ID       bson.ObjectID
	Stream   string // the stream whose events follow the build
	Position string // the source was read as of this position
}

// ErrForeignGuard means that the read model holds an aggregate that something other than the build
// has written.
var ErrForeignGuard = errors.New("the read model holds an aggregate that this build has not written")

// Build writes the state of aggregates that have no guard, each in one write or transaction, with a
// guard that lets events behind the build's position pass. An aggregate that the same build has
// written before stays as it is, as a whole. One that failed gets a record as [Record] has it, with
// [ReasonBuild], so that none of its later events is applied. Errors: [ErrForeignGuard], and those
// of the database that may be retried; after an error some of the aggregates may be written.
func (a *Applier) Build(ctx context.Context, b Build, all []*Built) error {
	var err error
	if a.guards.inside {
		err = a.buildDocuments(ctx, b, all)
	} else {
		err = a.buildTogether(ctx, b, all)
	}
	if err != nil {
		return fmt.Errorf("build projection %s: %w", a.projection.Name(), err)
	}
	return nil
}

// maxDocument is the largest document that a build writes, in bytes: MongoDB's limit, with room for
// the guard to grow.
const maxDocument = 16<<20 - 16<<10

// buildDocuments inserts documents with their guards, and then, as stubs, those that the database
// refuses.
func (a *Applier) buildDocuments(ctx context.Context, b Build, all []*Built) error {
	for left := all; len(left) > 0; {
		documents := make([]any, len(left))
		for i, one := range left {
			var err error
			if documents[i], err = a.builtDocument(b, one); err != nil {
				return err
			}
		}
		_, err := a.guards.collection.InsertMany(ctx, documents, options.InsertMany().SetOrdered(false))
		failed, err := byModel(err)
		if err != nil {
			return fmt.Errorf("write %s: %w", a.guards.collection.Name(), err)
		}
		var taken, again []*Built
		for i, failure := range failed {
			switch class := classifyWrite(failure.WriteError); {
			case class == Guarded:
				taken = append(taken, left[i])
			case class == Transient, class == Unknown:
				return fmt.Errorf("write %s: %w", a.guards.collection.Name(), failure)
			case left[i].Failed != nil:
				return fmt.Errorf("write %s: %w: %w", a.guards.collection.Name(), errNoStub, failure)
			default:
				left[i].Failed = failure
				again = append(again, left[i])
			}
		}
		if unknown, err := a.notBuilt(ctx, b, taken); err != nil || len(unknown) > 0 {
			return cmp.Or(err, errContended)
		}
		left = again
	}
	return nil
}

// builtDocument returns an aggregate's document with its guard, or a stub if it has none or failed.
func (a *Applier) builtDocument(b Build, one *Built) (bson.Raw, error) {
	for {
		guard := a.builtGuard(b, one)
		document := bson.D{{Key: "_id", Value: one.Aggregate}}
		if one.Failed != nil || one.Document == nil {
			guard = append(guard, bson.E{Key: guardEmpty, Value: true})
		} else {
			document = append(document, slices.DeleteFunc(slices.Clone(one.Document), func(e bson.E) bool { return e.Key == "_id" })...)
		}
		raw, err := bson.Marshal(append(document, bson.E{Key: projection.GuardField, Value: guard}))
		switch {
		case err != nil:
			return nil, fmt.Errorf("write the document of %q as BSON: %w", one.Aggregate, err)
		case len(raw) <= maxDocument:
			return raw, nil
		case one.Failed != nil:
			return nil, fmt.Errorf("the record of the failure of %q has %d bytes", one.Aggregate, len(raw))
		}
		one.Failed = fmt.Errorf("its document has %d bytes, and MongoDB takes at most 16 MiB", len(raw))
	}
}

// buildTogether writes records and effects of aggregates in one transaction. If one of them is
// refused, they are tried in halves.
func (a *Applier) buildTogether(ctx context.Context, b Build, all []*Built) error {
	if len(all) == 0 {
		return nil
	}
	err := a.buildAtOnce(ctx, b, all)
	switch Classify(err) {
	case None, Transient, Unknown:
		return err
	case Guarded:
		left, err := a.notBuilt(ctx, b, all)
		if err != nil {
			return err
		}
		if len(left) == len(all) {
			return errContended // another build removed the record of the failure
		}
		return a.buildTogether(ctx, b, left)
	case TooLarge, Permanent:
	}
	if len(all) == 1 {
		if all[0].Failed != nil {
			return err
		}
		all[0].Failed = err
		return a.buildTogether(ctx, b, all)
	}
	middle := len(all) / 2
	if err := a.buildTogether(ctx, b, all[:middle]); err != nil {
		return err
	}
	return a.buildTogether(ctx, b, all[middle:])
}

func (a *Applier) buildAtOnce(ctx context.Context, b Build, all []*Built) error {
	records := make([]mongo.WriteModel, len(all))
	var writes []projection.Write
	for i, one := range all {
		records[i] = mongo.NewInsertOneModel().SetDocument(append(bson.D{{Key: "_id", Value: one.Aggregate}}, a.builtGuard(b, one)...))
		if one.Failed == nil {
			writes = append(writes, one.Writes...)
		}
	}
	writes, err := compact(writes)
	if err != nil {
		return err
	}
	return a.transact(ctx, func(ctx context.Context) error {
		if _, err := a.guards.collection.BulkWrite(ctx, records); err != nil {
			return fmt.Errorf("write %s: %w", a.guards.collection.Name(), err)
		}
		return a.effect(ctx, writes)
	})
}

// builtGuard returns the guard of an aggregate, or the record of its failure.
func (a *Applier) builtGuard(b Build, one *Built) bson.D {
	guard := bson.D{{Key: guardBuild, Value: b.ID}}
	if one.Failed != nil {
		return append(guard, bson.E{Key: guardPosition, Value: ""}, bson.E{Key: guardParked, Value: Record{
			ID: bson.NewObjectID(), Since: time.Now().UTC(), Stream: b.Stream, Reason: ReasonBuild, Description: one.Failed.Error(),
		}})
	}
	return append(guard, guardAt(b, one)...)
}

// AlsoFedBy returns an aggregate of version 1 of the projection that a stream other than this one
// feeds; empty if its guards name none.
func (a *Applier) AlsoFedBy(ctx context.Context, stream string) (aggregate string, err error) {
	name := GuardCollection(projection.Base(a.projection))
	var found struct {
		ID string `bson:"_id"`
	}
	err = a.database.Collection(name).FindOne(ctx, bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: a.guards.prefix + guardStream, Value: bson.D{{Key: "$exists", Value: true}, {Key: "$ne", Value: stream}}}},
		bson.D{{Key: a.guards.prefix + guardStreams, Value: bson.D{{Key: "$exists", Value: true}}}},
	}}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Decode(&found)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return found.ID, nil
}

// notBuilt returns the aggregates that have no guard. Errors: [ErrForeignGuard].
func (a *Applier) notBuilt(ctx context.Context, b Build, all []*Built) (left []*Built, err error) {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = one.Aggregate
	}
	found, err := a.guards.read(ctx, names...)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		switch s, exists := found[one.Aggregate]; {
		case !exists:
			left = append(left, one)
		case s.build != b.ID:
			return nil, fmt.Errorf("%w: %q", ErrForeignGuard, one.Aggregate)
		}
	}
	return left, nil
}

// BuildFailures returns how many aggregates a build could not build.
func (a *Applier) BuildFailures(ctx context.Context, build bson.ObjectID) (int64, error) {
	n, err := a.guards.collection.CountDocuments(ctx, a.buildFailures(build))
	if err != nil {
		return 0, fmt.Errorf("count what could not be built in %s: %w", a.guards.collection.Name(), err)
	}
	return n, nil
}

// RetryBuild forgets the aggregates that a build could not build, so that it tries them again.
func (a *Applier) RetryBuild(ctx context.Context, build bson.ObjectID) error {
	if _, err := a.guards.collection.DeleteMany(ctx, a.buildFailures(build)); err != nil {
		return fmt.Errorf("forget what could not be built in %s: %w", a.guards.collection.Name(), err)
	}
	return nil
}

func (a *Applier) buildFailures(build bson.ObjectID) bson.D {
	return bson.D{{Key: a.guards.prefix + guardBuild, Value: build}, {Key: a.guards.prefix + guardParked + ".reason", Value: ReasonBuild}}
}

// Compact expresses writes of several events in fewer that have the same effect, with ids and
// values as BSON.
func Compact(writes []projection.Write) ([]projection.Write, error) {
	all, err := encoded(writes)
	if err != nil {
		return nil, err
	}
	return compact(all)
}
