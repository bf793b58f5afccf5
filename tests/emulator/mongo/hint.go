package mongo

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// hint refuses an index that does not exist, as a planner does. One that exists is
// not forced: the plan never changes a result here. A collection that does not
// exist has nothing to plan.
func (r *request) hint(ns engine.NS, v any) error {
	if d, ok := v.(bson.D); v == nil || (ok && len(d) == 0) {
		return nil
	}
	info, ok := r.srv.eng.Lookup(ns)
	if !ok {
		return nil
	}
	switch t := v.(type) {
	case string:
		if t == "_id_" {
			return nil
		}
		for _, ix := range info.Indexes {
			if ix.Name == t {
				return nil
			}
		}
	case bson.D:
		if t[0].Key == "$natural" || value.Equal(t, bson.D{{Key: "_id", Value: int32(1)}}) {
			return nil
		}
		for _, ix := range info.Indexes {
			if value.Equal(ix.Key, t) {
				return nil
			}
		}
	default:
		return mongoerr.New(mongoerr.FailedToParse, "Hint must be a string or an object, not %s", query.TypeName(v))
	}
	return mongoerr.New(mongoerr.BadValue, "error processing query: ns=%s :: caused by :: planner returned error :: caused by :: hint provided does not correspond to an existing index", ns)
}
