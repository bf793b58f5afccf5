package engine

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
)

// Expire deletes the documents whose date is older than their TTL index allows; of an array of
// dates the earliest counts. Documents without a date stay. more reports whether there are TTL
// indexes at all.
func (e *Engine) Expire(ctx context.Context) (more bool, err error) {
	now := time.Now()
	for _, c := range e.Collections("") {
		for _, ix := range c.Indexes {
			if ix.TTL < 0 {
				continue
			}
			more = true
			filter := bson.D{{Key: ix.Key[0].Key, Value: bson.D{{Key: "$lte", Value: bson.NewDateTimeFromTime(now.Add(-ix.TTL))}}}}
			if ix.Partial != nil {
				filter = bson.D{{Key: "$and", Value: bson.A{ix.Partial, filter}}}
			}
			m, compiled := query.Compile(filter, &query.Env{Now: now})
			if compiled == nil {
				_, compiled = e.Delete(ctx, c.NS, nil, Selection{Filter: filter, Matcher: m}, true)
			}
			err = errors.Join(err, compiled)
		}
	}
	return more, err
}
