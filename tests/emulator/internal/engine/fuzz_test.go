package engine

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// FuzzRestore reads arbitrary bytes as a snapshot. The result is an error, never a panic, or a
// state that can be saved and read again.
func FuzzRestore(f *testing.F) {
	var snapshot bytes.Buffer
	require.NoError(f, New(Options{}).Save(&snapshot))
	f.Add(snapshot.Bytes())
	index := bson.D{{Key: "name", Value: "x"}, {Key: "key", Value: bson.D{{Key: "a.b", Value: int32(-1)}}}, {Key: "unique", Value: true}, {Key: "expireAfterSeconds", Value: int32(1)}}
	now := bson.Timestamp{T: 1, I: 2}
	var whole []byte
	for _, part := range []bson.D{
		{{Key: "head", Value: bson.D{{Key: "version", Value: int32(snapshotVersion)}, {Key: "clock", Value: now}, {Key: "base", Value: int64(3)}}}},
		{{Key: "collection", Value: bson.D{{Key: "db", Value: "d"}, {Key: "coll", Value: "c"}, {Key: "indexes", Value: bson.A{index}}}}},
		{{Key: "document", Value: bson.D{{Key: "_id", Value: int32(1)}, {Key: "a", Value: bson.A{bson.D{{Key: "b", Value: 2.5}}}}}}},
		{{Key: "entry", Value: bson.D{{Key: "at", Value: now}, {Key: "kind", Value: int32(0)}, {Key: "db", Value: "d"}, {Key: "coll", Value: "c"}, {Key: "id", Value: int32(1)}, {Key: "full", Value: bson.D{{Key: "_id", Value: int32(1)}}}}}},
		{{Key: "tail", Value: int64(4)}},
	} {
		whole = append(whole, value.Encode(part)...)
	}
	require.NoError(f, New(Options{}).Restore(bytes.NewReader(whole)))
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		e := New(Options{})
		if e.Restore(bytes.NewReader(b)) != nil {
			return
		}
		var again bytes.Buffer
		require.NoError(t, e.Save(&again))
		require.NoError(t, New(Options{}).Restore(&again))
	})
}
