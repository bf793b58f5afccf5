package sim

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// replaceCollection replaces a stream's collection with one that was created under another name, as
// $out does. Its documents are in no change stream, and were not committed by the run: a message of
// them would be an effect without a commit.
func (w *world) replaceCollection(step plan.Step) {
	database := w.client.Database(plan.Database)
	_, name, _ := strings.Cut(step.Stream, ".")
	w.commit(w.Context(), func() error {
		_, err := database.Collection("made").InsertOne(w.Context(), bson.D{
			{Key: "_id", Value: fmt.Sprintf("ghost-%d", step.At.Milliseconds())}, {Key: "aggregateId", Value: "ghost"}, {Key: "version", Value: 1}, {Key: "type", Value: "Ghost"},
		})
		return err
	})
	err := w.client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "renameCollection", Value: plan.Database + ".made"}, {Key: "to", Value: plan.Database + "." + name}, {Key: "dropTarget", Value: true},
	}).Err()
	if err != nil {
		w.trace.add("the collection could not be replaced: %v", err) // MongoDB has no primary, or its answer got lost
		return
	}
	w.met.add("collections replaced", 1)
}

// replacedCollection is in the error of a stream that stops because its collection was replaced.
const replacedCollection = "ON_COLLECTION_REPLACED=continue"

// goOn lets the producers continue with the new collection.
func (w *world) goOn(string, string) bool {
	w.trace.add("the operator sets %s", replacedCollection)
	w.replacedIsKnown.Store(true)
	return true
}

// passedOver reports whether a collection was replaced whose stream must stop, and no stream has
// reported it yet.
func (w *world) passedOver() bool {
	return w.plan.Settings.OnReplaced == "fail" && w.met.count("collections replaced") > 0 && !w.replacedIsKnown.Load()
}
