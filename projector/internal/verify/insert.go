package verify

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Inserts returns a document of the source as the change that inserted it, twice: what the document
// does not hold (position, time, message id) differs between the two, so that writes which depend
// on it differ, too.
func (s Source) Inserts(document bson.Raw) (one, other envelope.Change) {
	c := s.change(document)
	return guess(c, false), guess(c, true)
}
