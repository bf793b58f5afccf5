package changes

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// unwanted returns the operations that the server need not send: those that may become messages and by the settings do not. There are none
// where positions are counted, and before it is known whether they are: then every event counts.
func (c Config) unwanted(position string) (operations []envelope.Operation) {
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

// stages returns the stages of a stream that goes on behind a position. The first leaves out what is not wanted, before documents are looked
// up for it, images required, and its size checked; kinds of change that are not known here come through.
func (c Config) stages(position string) mongo.Pipeline {
	stages := append(mongo.Pipeline{}, c.Pipeline...)
	if unwanted := c.unwanted(position); len(unwanted) > 0 {
		leaveOut := bson.D{{Key: "$match", Value: bson.D{{Key: "operationType", Value: bson.D{{Key: "$nin", Value: unwanted}}}}}}
		stages = slices.Insert(stages, 0, leaveOut)
	}
	return stages
}

// documents returns the change stream's options fullDocument and fullDocumentBeforeChange for what is wanted behind a position: the first is
// about updates, the second about everything but inserts.
func (c Config) documents(position string) (full, before options.FullDocument) {
	full, before = c.FullDocument, c.FullDocumentBeforeChange
	unwanted := c.unwanted(position)
	left := func(o envelope.Operation) bool { return slices.Contains(unwanted, o) }
	if left(envelope.Update) {
		full = ""
		if left(envelope.Replace) && left(envelope.Delete) {
			before = ""
		}
	}
	return full, before
}
