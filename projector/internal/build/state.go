package build

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
)

// The states of a build.
const (
	Building = "building" // ranges are left
	Failed   = "failed"   // every range is built, and some aggregates could not be
	Done     = "built"
	Dropped  = "dropped" // by an operator: its projectors end
)

// State is the record of a version's build, in the collection <projection>_build of the read model.
type State struct {
	ID     bson.ObjectID `bson:"id"`
	State  string        `bson:"state"`
	Source string        `bson:"source"` // DATABASE.COLLECTION
	UUID   bson.Binary   `bson:"uuid"`   // of the source's collection
	Stream string        `bson:"stream"`
	// Cursor is the greatest aggregate id of the ranges that are built; of type 0 before the first.
	Cursor     bson.RawValue `bson:"cursor,omitempty"`
	Ranges     int64         `bson:"ranges"`
	Aggregates int64         `bson:"aggregates"`
	Events     int64         `bson:"events"`
	Total      int64         `bson:"total"`           // about how many the source had at the last range
	Failed     int64         `bson:"failed"`          // aggregates, once every range is built
	Retry      bool          `bson:"retry,omitempty"` // the failures of an earlier run are still to be forgotten
	Began      time.Time     `bson:"began"`
	Changed    time.Time     `bson:"changed"`
	// Subscribed is when the subscription was created beside which the build began; zero if that is
	// not known.
	Subscribed time.Time `bson:"subscribed,omitempty"`
}

// span is one range: the aggregate ids behind those of the range before, up to To.
type span struct {
	To bson.RawValue  `bson:"to,omitempty"` // missing in the last range, which has no end
	At bson.Timestamp `bson:"at"`           // the cluster time at which it was read
}

const stateID = "state"

// records returns the collection of a version's build.
func records(readModel *mongo.Database, p projection.Projection) *mongo.Collection {
	return readModel.Collection(p.Name() + "_build")
}

// Read returns the state of a version's build; nil if none was ever begun.
func Read(ctx context.Context, readModel *mongo.Database, p projection.Projection) (*State, error) {
	var s State
	err := records(readModel, p).FindOne(ctx, bson.D{{Key: "_id", Value: stateID}},
		options.FindOne().SetProjection(bson.D{{Key: "spans", Value: 0}})).Decode(&s)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of the build: %w", err)
	}
	return &s, nil
}

// begin records a new build, or returns the one that another process has begun.
func (b *Builder) begin(ctx context.Context, uuid bson.Binary) (*State, error) {
	s := State{
		ID: bson.NewObjectID(), State: Building, Source: b.Source.String(), UUID: uuid, Stream: b.Stream.Name,
		Began: time.Now().UTC(), Changed: time.Now().UTC(),
	}
	raw, err := bson.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write the state of the build: %w", err)
	}
	_, err = b.records().UpdateOne(ctx, bson.D{{Key: "_id", Value: stateID}}, bson.D{{Key: "$setOnInsert", Value: bson.Raw(raw)}},
		options.UpdateOne().SetUpsert(true))
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return nil, fmt.Errorf("write the state of the build: %w", err)
	}
	return Read(ctx, b.ReadModel, b.Projection)
}

// subscribed records beside which subscription the build began.
func (b *Builder) subscribed(ctx context.Context, s *State, created time.Time) error {
	s.Subscribed = created.UTC()
	_, err := b.records().UpdateOne(ctx, bson.D{{Key: "_id", Value: stateID}, {Key: "id", Value: s.ID}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "subscribed", Value: s.Subscribed}}}})
	if err != nil {
		return fmt.Errorf("record the subscription of the build: %w", err)
	}
	return nil
}

// advance records that a range is built, unless another process has built it meanwhile, and returns
// the state since.
func (b *Builder) advance(ctx context.Context, s *State, t *taken) (*State, error) {
	total, err := b.Source.Collection.EstimatedDocumentCount(ctx)
	if err != nil {
		return nil, fmt.Errorf("count %s: %w", b.Source, err)
	}
	set := bson.D{{Key: "changed", Value: time.Now().UTC()}, {Key: "total", Value: total}}
	if t.span.To.Type != 0 {
		set = append(set, bson.E{Key: "cursor", Value: t.span.To})
	} else {
		failed, err := b.Applier.BuildFailures(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		state := Done
		if failed > 0 {
			state = Failed
		}
		set = append(set, bson.E{Key: "state", Value: state}, bson.E{Key: "failed", Value: failed})
	}
	return b.change(ctx, "record the progress of the build", s, bson.D{{Key: "state", Value: Building}, {Key: "ranges", Value: s.Ranges}}, bson.D{
		{Key: "$set", Value: set},
		{Key: "$inc", Value: bson.D{
			{Key: "ranges", Value: int64(1)}, {Key: "aggregates", Value: int64(len(t.all))}, {Key: "events", Value: t.events},
		}},
		{Key: "$push", Value: bson.D{{Key: "spans", Value: t.span}}},
	})
}

// change changes the record of a build, if it still is what s and the condition require, and
// returns the state since.
func (b *Builder) change(ctx context.Context, what string, s *State, condition, change bson.D) (*State, error) {
	record := append(bson.D{{Key: "_id", Value: stateID}, {Key: "id", Value: s.ID}}, condition...)
	if _, err := b.records().UpdateOne(ctx, record, change); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return Read(ctx, b.ReadModel, b.Projection)
}

// again begins the ranges from the first, for aggregates that could not be built: those that were
// stay as they are. The state changes before the failures are forgotten, so that no build can be
// accepted without them.
func (b *Builder) again(ctx context.Context, s *State) (*State, error) {
	return b.change(ctx, "begin the build again", s, bson.D{{Key: "state", Value: Failed}}, bson.D{
		{Key: "$set", Value: bson.D{
			{Key: "state", Value: Building},
			{Key: "retry", Value: true},
			{Key: "changed", Value: time.Now().UTC()},
			{Key: "ranges", Value: int64(0)},
			{Key: "aggregates", Value: int64(0)},
			{Key: "events", Value: int64(0)},
			{Key: "failed", Value: int64(0)},
			{Key: "spans", Value: bson.A{}},
		}},
		{Key: "$unset", Value: bson.D{{Key: "cursor", Value: ""}}},
	})
}

// forgetFailures makes the next run build the aggregates again that could not be built.
func (b *Builder) forgetFailures(ctx context.Context, s *State) (*State, error) {
	if err := b.Applier.RetryBuild(ctx, s.ID); err != nil {
		return nil, err
	}
	return b.change(ctx, "begin the build again", s, nil, bson.D{{Key: "$unset", Value: bson.D{{Key: "retry", Value: ""}}}})
}

// accept ends a build with aggregates that could not be built: they stay parked.
func (b *Builder) accept(ctx context.Context, s *State) (*State, error) {
	return b.change(ctx, "end the build", s, bson.D{{Key: "state", Value: Failed}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: Done}, {Key: "changed", Value: time.Now().UTC()}}}})
}

func (b *Builder) records() *mongo.Collection { return records(b.ReadModel, b.Projection) }

// ErrDropped is a version that an operator has dropped.
var ErrDropped = errors.New("this version of the projection was dropped, and its number is not used again: build a version of another number, or delete its app")

// CreateCollections creates the missing collections and indexes of a version that was not dropped,
// that of its guards first: [projection.Wait] finds the guards by it. Errors: [ErrDropped], and
// those of [createCollections].
func CreateCollections(ctx context.Context, readModel *mongo.Database, p projection.Projection) error {
	switch state, err := Read(ctx, readModel, p); {
	case err != nil:
		return err
	case state != nil && state.State == Dropped:
		return ErrDropped
	}
	collections, _ := projection.Collections(p)
	return createCollections(ctx, readModel, append([]projection.Collection{{Name: apply.GuardCollection(p)}}, collections...))
}

// Drop records that a version is dropped, which ends its projectors, and returns how to take that
// back.
func Drop(ctx context.Context, readModel *mongo.Database, p projection.Projection) (undo func(context.Context) error, err error) {
	state := bson.D{{Key: "_id", Value: stateID}}
	var before State
	err = records(readModel, p).FindOneAndUpdate(ctx, state,
		bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: Dropped}, {Key: "changed", Value: time.Now().UTC()}}}},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.Before).
			SetProjection(bson.D{{Key: "state", Value: 1}})).Decode(&before)
	created := errors.Is(err, mongo.ErrNoDocuments)
	if err != nil && !created {
		return nil, fmt.Errorf("record that %s is dropped: %w", p.Name(), err)
	}
	return func(ctx context.Context) (err error) {
		if created {
			_, err = records(readModel, p).DeleteOne(ctx, state)
		} else {
			_, err = records(readModel, p).UpdateOne(ctx, state, bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: before.State}}}})
		}
		if err != nil {
			return fmt.Errorf("take back the record of the drop: %w", err)
		}
		return nil
	}, nil
}
