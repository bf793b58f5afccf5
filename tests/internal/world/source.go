package world

import (
	"fmt"

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

// Insert commits the next event of an aggregate.
func (w *World) Insert(aggregate string) {
	w.Helper()
	w.Inserted[aggregate]++
	w.InsertDocument(bson.D{
		{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: w.Inserted[aggregate]}, {Key: "type", Value: "Counted"},
	})
}

// InsertDocument commits any document. A test that wants it judged counts it in Inserted.
func (w *World) InsertDocument(document any) {
	w.Helper()
	w.InsertInto(w.Events, document)
}

// InsertInto is InsertDocument for another collection.
func (w *World) InsertInto(collection *driver.Collection, document any) {
	w.Helper()
	_, err := collection.InsertOne(w.Context(), document)
	require.NoError(w, err)
}

// InsertMany commits n events of a few aggregates, with one command for each hundred.
func (w *World) InsertMany(n, aggregates int) {
	w.Helper()
	var documents []any
	for i := range n {
		aggregate := fmt.Sprintf("a%d", i%aggregates)
		w.Inserted[aggregate]++
		documents = append(documents, bson.D{
			{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: w.Inserted[aggregate]}, {Key: "type", Value: "Counted"},
		})
		if len(documents) == 100 || i == n-1 {
			_, err := w.Events.InsertMany(w.Context(), documents)
			require.NoError(w, err)
			documents = nil
		}
	}
}

// Total returns the number of events inserted.
func (w *World) Total() (n int) {
	for _, versions := range w.Inserted {
		n += versions
	}
	return n
}
