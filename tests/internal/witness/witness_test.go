package witness_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
)

// A change contains the position of one stream, no matter which fields on the path existed before.
func TestTheStreamOfAChangedPositionIsRecognised(t *testing.T) {
	t.Parallel()
	position := bson.D{{Key: "position", Value: "825"}, {Key: "epoch", Value: int64(1)}}
	guest := bson.D{{Key: "shop%2Ereturns", Value: position}}
	key := bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: "a"}}}
	update := func(fields ...bson.E) bson.D {
		return bson.D{
			{Key: "operationType", Value: "update"},
			key,
			{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: append(bson.D{{Key: "events", Value: int64(2)}}, fields...)}}},
		}
	}
	insert := func(guard bson.D) bson.D {
		return bson.D{{Key: "operationType", Value: "insert"}, key, {Key: "fullDocument", Value: bson.D{{Key: "events", Value: int64(2)}, {Key: "_sluice", Value: guard}}}}
	}
	for name, test := range map[string]struct {
		change           bson.D
		stream, position string
	}{
		"the first stream's":                   {update(bson.E{Key: "_sluice.position", Value: "825"}, bson.E{Key: "_sluice.epoch", Value: int64(2)}), "", "825"},
		"the first stream's, with its guard":   {update(bson.E{Key: "_sluice", Value: position}), "", "825"},
		"another's":                            {update(bson.E{Key: "_sluice.streams.shop%2Ereturns.position", Value: "825"}), "shop.returns", "825"},
		"another's, with its guard":            {update(bson.E{Key: "_sluice.streams.shop%2Ereturns", Value: position}), "shop.returns", "825"},
		"another's, with all of them":          {update(bson.E{Key: "_sluice.streams", Value: guest}), "shop.returns", "825"},
		"another's, with all there is":         {update(bson.E{Key: "_sluice", Value: bson.D{{Key: "streams", Value: guest}}}), "shop.returns", "825"},
		"no position":                          {update(bson.E{Key: "_sluice.epoch", Value: int64(2)}), "", ""},
		"the first stream's of a new document": {insert(position), "", "825"},
		"another's of a new document":          {insert(bson.D{{Key: "streams", Value: guest}}), "shop.returns", "825"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := bson.Marshal(test.change)
			require.NoError(t, err)
			at := time.Unix(7, 0)
			o, ok := witness.Timeline(raw, at)
			require.True(t, ok)
			require.Equal(t, history.Observation{Aggregate: "a", Events: 2, Position: test.position, Stream: test.stream, At: at}, o)
		})
	}
}

func TestChangesThatAreNoCount(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]history.Observation{
		`{"operationType":"update","documentKey":{"_id":"a"},"updateDescription":{"updatedFields":{"_sluice.position":"8202"}}}`: {Aggregate: "a", Events: -1, Position: "8202"},
		`{"operationType":"delete","documentKey":{"_id":"a"}}`:                                                                   {Aggregate: "a"},
		`{"operationType":"drop"}`: {},
	} {
		var raw bson.Raw
		require.NoError(t, bson.UnmarshalExtJSON([]byte(change), false, &raw))
		o, ok := witness.Timeline(raw, time.Time{})
		require.Equal(t, want, o, change)
		require.Equal(t, want.Aggregate != "", ok, change)
	}
}
