package world

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// KeepImages creates the collection, which keeps the documents before and after each change.
func (w *World) KeepImages() {
	w.Helper()
	require.NoError(w, w.Events.Database().CreateCollection(w.Context(), sourceCollection,
		options.CreateCollection().SetChangeStreamPreAndPostImages(bson.D{{Key: "enabled", Value: true}})))
}

// next returns the next event of an aggregate.
func (w *World) next(aggregate string) bson.D {
	w.Inserted[aggregate]++
	return bson.D{{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: w.Inserted[aggregate]}, {Key: "type", Value: "Counted"}}
}

// Insert commits the next event of an aggregate.
func (w *World) Insert(aggregate string) {
	w.Helper()
	w.InsertDocument(w.next(aggregate))
}

// InsertDocument commits any document. A test that wants it judged counts it in Inserted.
func (w *World) InsertDocument(document any) {
	w.Helper()
	w.InsertInto(w.Events, document)
}

// InsertInto is like InsertDocument for another collection.
func (w *World) InsertInto(collection *driver.Collection, document any) {
	w.Helper()
	_, err := collection.InsertOne(w.Context(), document)
	require.NoError(w, err)
}

// InsertMany commits n events of a few aggregates, with one command for each hundred.
func (w *World) InsertMany(n, aggregates int) {
	w.Helper()
	documents := make([]any, n)
	for i := range documents {
		documents[i] = w.next(fmt.Sprintf("a%d", i%aggregates))
	}
	for command := range slices.Chunk(documents, 100) {
		_, err := w.Events.InsertMany(w.Context(), command)
		require.NoError(w, err)
	}
}

// CreateIndex creates an index of fields of the events.
func CreateIndex(t *testing.T, events *driver.Collection, fields ...string) {
	t.Helper()
	keys := bson.D{}
	for _, field := range fields {
		keys = append(keys, bson.E{Key: field, Value: 1})
	}
	_, err := events.Indexes().CreateOne(t.Context(), driver.IndexModel{Keys: keys})
	require.NoError(t, err)
}

// Total returns the number of events inserted.
func (w *World) Total() (n int) {
	for _, versions := range w.Inserted {
		n += versions
	}
	return n
}
