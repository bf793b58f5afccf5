package changes

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Sample is what the first and the last documents of a collection, by _id, say about the types of their versions and aggregate ids.
type Sample struct {
	Documents int // looked at
	// Versions says what is wrong with one that is no whole number; MendVersions what to do. Empty: nothing is.
	Versions, MendVersions string
	// Aggregates says which two ids of different types read alike; MendAggregates what to do. Empty: none do.
	Aggregates, MendAggregates string
}

// sampled is how many documents are looked at from each end. Both ends show a type that was changed at some time, and where
// different types are in _id itself, MongoDB sorts by them first.
const sampled = 500

// Sample looks at documents of the collection, by the index that every collection has. Errors: the server's.
func (m Mapping) Sample(ctx context.Context, collection *mongo.Collection) (s Sample, err error) {
	var seen ids
	for _, direction := range []int{1, -1} {
		cursor, err := collection.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: direction}}).SetLimit(sampled).
			SetProjection(m.sampledFields()))
		if err != nil {
			return s, fmt.Errorf("look at documents: %w", err)
		}
		var documents []bson.Raw
		if err := cursor.All(ctx, &documents); err != nil {
			return s, fmt.Errorf("look at documents: %w", err)
		}
		for _, document := range documents {
			s.look(m, document, &seen)
		}
		if len(documents) < sampled {
			break // that was all of them
		}
	}
	return s, nil
}

// look looks at one document.
func (s *Sample) look(m Mapping, document bson.Raw, seen *ids) {
	s.Documents++
	if v := at(document, m.VersionPath); s.Versions == "" && !numbered(v) {
		s.Versions = fmt.Sprintf("a version is %s, so that nobody notices when an event before it is missing", shown(v))
		s.MendVersions = mendVersions(m.VersionPath)
	}
	id := at(document, m.AggregatePath)
	if _, ok := envelope.Text(id); !ok {
		id = document.Lookup("_id")
	}
	if _, other := seen.alike(id); s.Aggregates == "" && other != "" {
		s.Aggregates = fmt.Sprintf("aggregate ids read alike, %s and %s: those with the same text are one aggregate", other, shown(id))
		s.MendAggregates = mendIDs(m.AggregatePath)
	}
}

// sampledFields are the paths that are looked at. The server takes none that lies in another; _id is always there.
func (m Mapping) sampledFields() bson.D {
	fields := bson.D{{Key: "_id", Value: 1}}
	paths := []string{m.AggregatePath, m.VersionPath}
	for i, path := range paths {
		within := func(other string) bool { return strings.HasPrefix(path, other+".") }
		if path != "" && root(path) != "_id" && !within(paths[1-i]) && (i == 0 || path != paths[0]) {
			fields = append(fields, bson.E{Key: path, Value: 1})
		}
	}
	return fields
}
