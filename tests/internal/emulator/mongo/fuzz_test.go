package mongo

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo/value"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo/wire"
)

// FuzzDispatch sends arbitrary bodies to the command entry: an answer, never a panic.
func FuzzDispatch(f *testing.F) {
	for _, d := range []bson.D{
		{{Key: "ping", Value: 1}},
		{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 1}}}}},
		{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: bson.D{{Key: "a", Value: bson.D{{Key: "$gt", Value: 1}}}}}, {Key: "u", Value: bson.D{{Key: "$push", Value: bson.D{{Key: "l", Value: 1}}}}}, {Key: "upsert", Value: true}}}}},
		{{Key: "find", Value: "c"}, {Key: "filter", Value: bson.D{{Key: "a.b", Value: bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$lt", Value: 2.5}}}}}}}, {Key: "sort", Value: bson.D{{Key: "a", Value: -1}}}},
		{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$changeStream", Value: bson.D{{Key: "resumeAfter", Value: bson.D{{Key: "_data", Value: "8263515EAC000000022B0429296E1404"}}}}}}}}, {Key: "cursor", Value: bson.D{}}},
		{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$a"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}}}}, {Key: "cursor", Value: bson.D{}}},
		{{Key: "findAndModify", Value: "c"}, {Key: "query", Value: bson.D{}}, {Key: "update", Value: bson.A{bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: bson.D{{Key: "$cond", Value: bson.A{true, 1, 2}}}}}}}}}},
	} {
		f.Add([]byte(value.Encode(append(d, bson.E{Key: "$db", Value: "db"}))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := New(Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		reply, err := s.dispatch(ctx, &conn{srv: s}, &wire.Message{OpCode: wire.OpMsg, Body: b})
		if err == nil {
			value.Encode(reply)
		}
	})
}
