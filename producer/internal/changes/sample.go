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

// Sample describes the types of the versions and aggregate ids in the first and the last documents
// of a collection, by _id.
type Sample struct {
	Documents int // number of documents examined
	// Versions describes a version that is not an integer; VersionRemedy is what to do. Empty:
	// every version is an integer.
	Versions, VersionRemedy string
	// Aggregates describes two ids of different types with the same text; AggregateRemedy is what
	// to do. Empty: no two such ids.
	Aggregates, AggregateRemedy string
}

// sampleSize is how many documents are examined from each end. The two ends show a type that was
// changed at some time; and if _id itself has different types, MongoDB sorts by type first.
const sampleSize = 500

// Sample examines documents of the collection, by the index that every collection has. Errors are
// the server's.
func (m Mapping) Sample(ctx context.Context, collection *mongo.Collection) (s Sample, err error) {
	var seen idKinds
	for _, direction := range []int{1, -1} {
		cursor, err := collection.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: direction}}).SetLimit(sampleSize).
			SetProjection(m.sampledFields()))
		if err != nil {
			return s, fmt.Errorf("read sample documents: %w", err)
		}
		var documents []bson.Raw
		if err := cursor.All(ctx, &documents); err != nil {
			return s, fmt.Errorf("read sample documents: %w", err)
		}
		for _, document := range documents {
			s.add(m, document, &seen)
		}
		if len(documents) < sampleSize {
			break // that was all of them
		}
	}
	return s, nil
}

// add examines one document.
func (s *Sample) add(m Mapping, document bson.Raw, seen *idKinds) {
	s.Documents++
	if v := at(document, m.VersionPath); s.Versions == "" && !isNumberOrAbsent(v) {
		s.Versions = fmt.Sprintf("a version is %s, so a missing event before it would go unnoticed", format(v))
		s.VersionRemedy = versionRemedy(m.VersionPath)
	}
	id := at(document, m.AggregatePath)
	if _, ok := envelope.Text(id); !ok {
		id = document.Lookup("_id")
	}
	if _, other := seen.conflictingType(id); s.Aggregates == "" && other != "" {
		s.Aggregates = fmt.Sprintf("aggregate ids of two types may have the same text, %s and %s: those with the same text are one aggregate", other, format(id))
		s.AggregateRemedy = aggregateRemedy(m.AggregatePath)
	}
}

// sampledFields returns the projection of the examined paths. The server accepts no path inside
// another; _id is always included.
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
