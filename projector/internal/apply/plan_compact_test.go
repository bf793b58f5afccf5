package apply

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

func TestCompact(t *testing.T) {
	inc := func(collection string, id any, by int64) projection.Write {
		return projection.Update(collection, id, projection.Inc("n", by))
	}
	push := func(id any) projection.Write {
		return projection.UpdateExisting("m", id, projection.Truncate("list", 1))
	}
	document, err := bson.Marshal(bson.D{})
	require.NoError(t, err)
	put := projection.Replace("m", 1, document)
	gone := projection.Delete("m", 1)
	if0 := projection.DeleteIf("m", 1, projection.Lte("n", 0))
	for _, test := range []struct {
		name string
		in   []projection.Write
		want []projection.Write
	}{
		{"updates of one document are folded", []projection.Write{inc("m", 1, 1), inc("m", 1, 2)}, []projection.Write{inc("m", 1, 3)}},
		{"also when others come between", []projection.Write{inc("m", 1, 1), inc("n", "c", 1), inc("m", 2, 1), inc("m", 1, 2), inc("n", "c", 1)}, []projection.Write{inc("m", 1, 3), inc("m", 2, 1), inc("n", "c", 2)}},
		{"those that do not fold stay, in order", []projection.Write{push(1), push(1), inc("m", 1, 1)}, []projection.Write{push(1), push(1), inc("m", 1, 1)}},
		{"before a deletion nothing matters", []projection.Write{put, inc("m", 1, 1), gone}, []projection.Write{gone}},
		{"after it things do", []projection.Write{gone, put, inc("m", 1, 1), inc("m", 1, 1)}, []projection.Write{put, inc("m", 1, 2)}},
		{"before a deletion under a condition they do", []projection.Write{put, inc("m", 1, 1), if0, inc("m", 1, 1), inc("m", 1, 1)}, []projection.Write{put, inc("m", 1, 1), if0, inc("m", 1, 2)}},
		{"but for a later deletion without", []projection.Write{inc("m", 1, 1), if0, gone}, []projection.Write{gone}},
		{"of that document only", []projection.Write{inc("m", 2, 1), inc("m", "1", 1), gone}, []projection.Write{inc("m", 2, 1), inc("m", "1", 1), gone}},
		{"of that collection only", []projection.Write{projection.Delete("n", 1), gone}, []projection.Write{projection.Delete("n", 1), gone}},
		{"equal numbers are one id", []projection.Write{inc("m", int64(1), 1), inc("m", 1.0, 1), gone}, []projection.Write{gone}},
		{"numbers beyond int64 are their own", []projection.Write{inc("m", 1e300, 1), inc("m", math.Inf(1), 1), inc("m", 0x1p63, 1), inc("m", math.MaxInt64, 1)}, []projection.Write{inc("m", 1e300, 1), inc("m", math.Inf(1), 1), inc("m", 0x1p63, 1), inc("m", math.MaxInt64, 1)}},
		{"other numbers are not", []projection.Write{inc("m", 1.5, 1), gone}, []projection.Write{inc("m", 1.5, 1), gone}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := compact(test.in)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
	_, err = compact([]projection.Write{projection.Delete("m", make(chan int))})
	require.ErrorIs(t, err, projection.ErrPermanent)
}
