package mongo

import (
	"context"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/wire"
)

// FuzzDispatch sends arbitrary bodies to the command entry: an answer, never a panic, and a state
// that can be saved.
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
		f.Add(joined(d))
	}
	// Several, one after the other, meet state: a unique index that would be broken, a cursor that
	// is read on.
	f.Add(joined(
		bson.D{{Key: "createIndexes", Value: "c"}, {Key: "indexes", Value: bson.A{bson.D{{Key: "key", Value: bson.D{{Key: "a.b", Value: 1}}}, {Key: "name", Value: "x"}, {Key: "unique", Value: true}}}}},
		bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 1}, {Key: "a", Value: bson.A{bson.D{{Key: "b", Value: 1}}}}}, bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: 1}}}}}}, {Key: "ordered", Value: false}},
		bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: bson.D{{Key: "a.b", Value: 1}}}, {Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "a.$.b", Value: 1}}}}}}}}},
		bson.D{{Key: "find", Value: "c"}, {Key: "batchSize", Value: 0}},
		bson.D{{Key: "getMore", Value: int64(1)}, {Key: "collection", Value: "c"}},
		bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: bson.D{}}, {Key: "limit", Value: 0}}}}},
	))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := New(Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		c := &conn{srv: s}
		for len(b) > 0 {
			body := b
			if n, ok := length(b); ok {
				body = b[:n]
			}
			b = b[len(body):]
			reply, err := s.dispatch(ctx, c, &wire.Message{OpCode: wire.OpMsg, Body: body})
			if err == nil {
				value.Encode(reply)
			}
		}
		require.NoError(t, s.Save(io.Discard))
	})
}

// joined returns the commands' bodies, one after the other.
func joined(commands ...bson.D) []byte {
	var all []byte
	for _, d := range commands {
		all = append(all, value.Encode(append(d, bson.E{Key: "$db", Value: "db"}))...)
	}
	return all
}

// length returns the length of the document at the beginning of b, if b contains all of it.
func length(b []byte) (int, bool) {
	if len(b) < 5 {
		return 0, false
	}
	n := int(binary.LittleEndian.Uint32(b))
	return n, n >= 5 && n <= len(b)
}
