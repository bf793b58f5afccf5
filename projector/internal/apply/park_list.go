package apply

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Aggregate is a parked aggregate.
type Aggregate struct {
	Name string
	// Position is the position of the last applied event, in the stream of the event that parked
	// the aggregate; empty if no event was applied.
	Position string
	// Guard is the aggregate's guard.
	Guard Guard
	Record
}

func (g guards) since() string { return g.prefix + guardParked + ".since" }

// Index creates the index that finds and counts parked aggregates quickly. It may be called
// concurrently and repeatedly.
func (a *Applier) Index(ctx context.Context) error {
	_, err := a.guards.collection.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    bson.D{{Key: a.guards.since(), Value: 1}},
		Options: options.Index().SetName("sluice_parked").SetSparse(true),
	})
	if err != nil {
		return fmt.Errorf("create index sluice_parked of %s: %w", a.guards.collection.Name(), err)
	}
	return nil
}

// Count returns the number of parked aggregates.
func (a *Applier) Count(ctx context.Context) (int64, error) {
	n, err := a.guards.collection.CountDocuments(ctx, bson.D{{Key: a.guards.since(), Value: bson.D{{Key: "$exists", Value: true}}}})
	if err != nil {
		return 0, fmt.Errorf("count parked aggregates: %w", err)
	}
	return n, nil
}

// List returns the parked aggregates, those parked the longest first.
func (a *Applier) List(ctx context.Context) (all []Aggregate, err error) {
	since := a.guards.since()
	err = a.guards.find(ctx, "list parked aggregates", bson.D{{Key: since, Value: bson.D{{Key: "$exists", Value: true}}}},
		options.Find().SetSort(bson.D{{Key: since, Value: 1}}), func(aggregate string, s guardState) {
			all = append(all, parkedAggregate(aggregate, s))
		})
	return all, err
}

// Parked returns one parked aggregate. Errors: [ErrNotParked].
func (a *Applier) Parked(ctx context.Context, aggregate string) (Aggregate, error) {
	found, err := a.guards.read(ctx, aggregate)
	if err != nil {
		return Aggregate{}, err
	}
	s := found[aggregate]
	if s.Parked == nil {
		return Aggregate{Name: aggregate, Position: s.Position, Guard: s.Guard}, ErrNotParked
	}
	return parkedAggregate(aggregate, s), nil
}

func parkedAggregate(name string, s guardState) Aggregate {
	return Aggregate{Name: name, Position: s.Of(s.Parked.Stream).Position, Guard: s.Guard, Record: *s.Parked}
}
