package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// The order contains what a sorted slice would, through random additions and removals.
func TestOrderIsASortedSet(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var o order
	var want []string
	records := map[string]*record{}
	for i := range 20_000 {
		key := fmt.Sprintf("%05d", r.IntN(8000))
		if i < 3000 {
			key = fmt.Sprintf("%05d", i*2) // growing, as ids do
		}
		at, have := slices.BinarySearch(want, key)
		switch {
		case have && r.IntN(2) == 0:
			o.remove(records[key])
			want = slices.Delete(want, at, at+1)
		case !have:
			records[key] = &record{key: key}
			o.add(records[key])
			want = slices.Insert(want, at, key)
		}
	}
	for _, b := range []bounds{{}, {low: "02000"}, {high: "05000"}, {low: "02001", high: "06001"}, {low: "9"}, {high: "0"}} {
		var expected []string
		for _, k := range want {
			if k >= b.low && (b.high == "" || k <= b.high) {
				expected = append(expected, k)
			}
		}
		for _, descending := range []bool{false, true} {
			var got []string
			o.scan(b, descending, func(r *record) bool { got = append(got, r.key); return true })
			if descending {
				slices.Reverse(got)
			}
			require.Equal(t, expected, got, "%+v", b)
		}
	}
}

// Ranges and sorts on _id return the same as matching and sorting all documents, over ids of every
// kind, and read no more than the range.
func TestRangesOfID(t *testing.T) {
	e := New(Options{})
	ids := bson.A{int32(1), int64(2), 2.5, int32(40), "a", "ab", "b", bson.NewObjectID(), bson.DateTime(5), bson.Timestamp{T: 1, I: 2}, true, false, nil, bson.D{{Key: "x", Value: int32(1)}}, bson.MinKey{}, bson.MaxKey{}, bson.Binary{Subtype: 0, Data: []byte{1}}, -1.5, int32(-7)}
	var docs []bson.Raw
	for _, id := range ids {
		docs = append(docs, value.Encode(bson.D{{Key: "_id", Value: id}}))
	}
	_, err := e.Insert(t.Context(), ns, nil, docs, true, func(_ int, err error) { require.NoError(t, err) })
	require.NoError(t, err)
	up, err := query.CompileSort(bson.D{{Key: "_id", Value: int32(1)}})
	require.NoError(t, err)
	down, err := query.CompileSort(bson.D{{Key: "_id", Value: int32(-1)}})
	require.NoError(t, err)
	for _, op := range []string{"$gt", "$gte", "$lt", "$lte"} {
		for _, bound := range ids {
			filter := bson.D{{Key: "_id", Value: bson.D{{Key: op, Value: bound}}}}
			m, err := query.Compile(filter, &query.Env{})
			require.NoError(t, err)
			for _, s := range []*query.Sort{up, down} {
				var want []bson.D
				for _, raw := range docs {
					doc, err := value.Decode(raw)
					require.NoError(t, err)
					if ok, err := m.Match(doc); ok && err == nil {
						want = append(want, doc)
					}
				}
				s.Docs(want)
				var got []bson.D
				require.NoError(t, e.Find(ns, View{}, Selection{Filter: filter, Matcher: m, Sort: s}, func(raw bson.Raw, _ bson.D, sorted bool) bool {
					require.True(t, sorted)
					doc, err := value.Decode(raw)
					require.NoError(t, err)
					got = append(got, doc)
					return true
				}))
				require.Equal(t, want, got, "%s %v", op, bound)
			}
		}
	}
	looked := 0
	e.colls[ns].candidates(Selection{Filter: bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: "a"}, {Key: "$lt", Value: "b"}}}}}, func(r *record, _ bool) bool {
		require.GreaterOrEqual(t, r.key, keystring.Of("a"))
		looked++
		return true
	})
	require.Equal(t, 3, looked)
}
