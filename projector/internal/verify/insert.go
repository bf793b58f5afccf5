package verify

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Sample calls fn with n random documents of the source, as inserts, or with all if there are
// fewer.
func (s Source) Sample(ctx context.Context, n int64, fn func(envelope.Change) error) error {
	return s.sample(ctx, n, func(c envelope.Change) error { return fn(guess(c, false)) })
}

// Inserts returns a document of the source as the change that inserted it, twice: what the document
// does not hold (position, time, message id) differs between the two, so that writes which depend
// on it differ, too.
func (s Source) Inserts(document bson.Raw) (one, other envelope.Change) {
	c := s.change(document)
	return guess(c, false), guess(c, true)
}
