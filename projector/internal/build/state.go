package build

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// The states of a build.
const (
	Building = "building" // ranges are left
	Failed   = "failed"   // every range is built, and some aggregates could not be
	Done     = "built"
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
	Failed     int64         `bson:"failed"` // aggregates
	Began      time.Time     `bson:"began"`
	Changed    time.Time     `bson:"changed"`
}

// span is the record of one range: the aggregate ids behind those of the range before, up to To.
type span struct {
	Number int64          `bson:"_id"`
	Build  bson.ObjectID  `bson:"build"`
	To     bson.RawValue  `bson:"to,omitempty"` // missing in the last range, which has no end
	At     bson.Timestamp `bson:"at"`           // the cluster time at which it was read
}

const stateID = "state"

// records is the collection of a version's build.
func records(readModel *mongo.Database, p projection.Projection) *mongo.Collection {
	return readModel.Collection(p.Name() + "_build")
}

// Read returns the state of a version's build; nil if none was ever begun.
func Read(ctx context.Context, readModel *mongo.Database, p projection.Projection) (*State, error) {
	var s State
	err := records(readModel, p).FindOne(ctx, bson.D{{Key: "_id", Value: stateID}}).Decode(&s)
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

// advance records that a range is built, unless another process has built it meanwhile, and returns
// the state since.
func (b *Builder) advance(ctx context.Context, s *State, built span, r *result) (*State, error) {
	if _, err := b.records().ReplaceOne(ctx, bson.D{{Key: "_id", Value: built.Number}}, built, options.Replace().SetUpsert(true)); err != nil {
		return nil, fmt.Errorf("record a range of the build: %w", err)
	}
	set := bson.D{{Key: "changed", Value: time.Now().UTC()}, {Key: "cursor", Value: built.To}}
	if built.To.Type == 0 {
		state := Done
		if s.Failed+r.failed > 0 {
			state = Failed
		}
		set = bson.D{{Key: "changed", Value: time.Now().UTC()}, {Key: "state", Value: state}}
	}
	_, err := b.records().UpdateOne(ctx, bson.D{
		{Key: "_id", Value: stateID}, {Key: "id", Value: s.ID}, {Key: "state", Value: Building}, {Key: "ranges", Value: s.Ranges},
	}, bson.D{{Key: "$set", Value: set}, {Key: "$inc", Value: bson.D{
		{Key: "ranges", Value: int64(1)}, {Key: "aggregates", Value: r.aggregates}, {Key: "events", Value: r.events}, {Key: "failed", Value: r.failed},
	}}})
	if err != nil {
		return nil, fmt.Errorf("record the progress of the build: %w", err)
	}
	return Read(ctx, b.ReadModel, b.Projection)
}

// again begins the ranges from the first, for aggregates that could not be built: those that were
// stay as they are.
func (b *Builder) again(ctx context.Context, s *State) (*State, error) {
	if _, err := b.Applier.Retry(ctx, s.ID); err != nil {
		return nil, err
	}
	_, err := b.records().UpdateOne(ctx, bson.D{{Key: "_id", Value: stateID}, {Key: "id", Value: s.ID}, {Key: "state", Value: Failed}}, bson.D{
		{Key: "$set", Value: bson.D{
			{Key: "state", Value: Building},
			{Key: "changed", Value: time.Now().UTC()},
			{Key: "ranges", Value: int64(0)},
			{Key: "aggregates", Value: int64(0)},
			{Key: "events", Value: int64(0)},
			{Key: "failed", Value: int64(0)},
		}},
		{Key: "$unset", Value: bson.D{{Key: "cursor", Value: ""}}},
	})
	if err != nil {
		return nil, fmt.Errorf("begin the build again: %w", err)
	}
	return Read(ctx, b.ReadModel, b.Projection)
}

// accept ends a build with aggregates that could not be built: they stay parked.
func (b *Builder) accept(ctx context.Context, s *State) (*State, error) {
	_, err := b.records().UpdateOne(ctx, bson.D{{Key: "_id", Value: stateID}, {Key: "id", Value: s.ID}, {Key: "state", Value: Failed}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: Done}, {Key: "changed", Value: time.Now().UTC()}}}})
	if err != nil {
		return nil, fmt.Errorf("end the build: %w", err)
	}
	return Read(ctx, b.ReadModel, b.Projection)
}

func (b *Builder) records() *mongo.Collection { return records(b.ReadModel, b.Projection) }
