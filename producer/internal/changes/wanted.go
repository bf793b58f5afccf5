package changes

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// unwantedOperations returns the operations that the server need not send: those that may become
// messages but are not in OPERATIONS. The list is empty if positions are counted, or before that is
// known: then every event counts.
func (c Config) unwantedOperations(position string) (operations []envelope.Operation) {
	if !envelope.Sortable(position) {
		return nil
	}
	for _, o := range []envelope.Operation{envelope.Insert, envelope.Update, envelope.Replace, envelope.Delete} {
		if !slices.Contains(c.Mapping.Operations, o) {
			operations = append(operations, o)
		}
	}
	return operations
}

// stages returns the stages of a stream that continues after a position. The first stage removes
// unwanted events before documents are looked up for them, images required, and their size checked;
// unknown kinds of change pass.
func (c Config) stages(position string) mongo.Pipeline {
	stages := mongo.Pipeline{}
	if unwanted := c.unwantedOperations(position); len(unwanted) > 0 {
		leaveOut := bson.D{{Key: "$match", Value: bson.D{{Key: "operationType", Value: bson.D{{Key: "$nin", Value: unwanted}}}}}}
		stages = append(stages, leaveOut)
	}
	return append(stages, c.Pipeline...)
}

// documents returns the change stream's options fullDocument and fullDocumentBeforeChange for the
// operations wanted after a position. The first concerns updates, the second everything but
// inserts.
func (c Config) documents(position string) (full, before options.FullDocument) {
	full, before = c.FullDocument, c.FullDocumentBeforeChange
	unwanted := c.unwantedOperations(position)
	leftOut := func(o envelope.Operation) bool { return slices.Contains(unwanted, o) }
	if leftOut(envelope.Update) {
		full = ""
		if leftOut(envelope.Replace) && leftOut(envelope.Delete) {
			before = ""
		}
	}
	return full, before
}
