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

// Guard is the progress of an aggregate.
type Guard struct {
	// Position is that of the last event applied; empty before the first.
	Position string
	// Version is the version of the last insert applied that had one; 0 if none had.
	Version int64
	// First is the version from which on every one up to Version is known to have been applied; 0
	// if that is not known.
	First int64
	// Stream is the stream of all of these; empty if that is not known. Streams are the guards of
	// the others, without Parked.
	Stream  string
	Streams map[string]Guard
	// Parked is the record of its parking; nil if it is not parked.
	Parked  *Record
	guarded bool // it has a position, if only an empty one
}

// Guards returns the guards of aggregates. An aggregate without a guard is missing.
func (a *Applier) Guards(ctx context.Context, aggregates ...string) (map[string]Guard, error) {
	found, err := a.guards.read(ctx, aggregates...)
	if err != nil {
		return nil, err
	}
	all := make(map[string]Guard, len(found))
	for aggregate, s := range found {
		all[aggregate] = s.Guard
	}
	return all, nil
}

// Newest returns the highest position applied of any aggregate, and the aggregate; empty before the
// first. It reads the whole collection of the guards.
func (a *Applier) Newest(ctx context.Context) (aggregate, position string, err error) {
	field := a.guards.prefix + guardPosition
	doc, err := a.guards.collection.FindOne(ctx, bson.D{{Key: field, Value: bson.D{{Key: "$gt", Value: ""}}}},
		options.FindOne().SetSort(bson.D{{Key: field, Value: -1}}).SetProjection(bson.D{{Key: field, Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("find the newest position in %s: %w", a.guards.collection.Name(), err)
	}
	id, s, err := a.guards.decode(doc)
	return id, s.Position, err
}

// GuardCollection names the collection that holds the guards.
func (a *Applier) GuardCollection() string { return a.guards.collection.Name() }

// Collections returns the names of the collection with the guards and of those that the projection
// names.
func (a *Applier) Collections() []string {
	names := []string{a.GuardCollection()}
	own, _ := projection.Collections(a.projection)
	for _, c := range own {
		names = append(names, c.Name)
	}
	return names
}

// WithoutStubs returns the pipeline that leaves stubs out of what readers see.
func WithoutStubs() bson.A {
	return bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: projection.GuardField + "." + guardEmpty, Value: bson.D{{Key: "$ne", Value: true}}}}}}}
}

// Stub reports whether a document of a [projection.OneDocument] was made only to hold a parked
// record.
func Stub(document bson.Raw) bool {
	empty, _ := document.Lookup(projection.GuardField, guardEmpty).BooleanOK()
	return empty
}
