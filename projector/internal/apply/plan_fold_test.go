package apply

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

func upsert(ops ...projection.Op) []projection.Write {
	return []projection.Write{projection.Update("c", "a", ops...)}
}

func existing(ops ...projection.Op) []projection.Write {
	return []projection.Write{projection.UpdateExisting("c", "a", ops...)}
}

func inOrder(ops ...projection.Op) []projection.Write {
	return []projection.Write{projection.UpdateOne{Collection: "c", ID: "a", Ops: ops, InOrder: true}}
}

func TestFold(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	document, err := bson.Marshal(bson.D{{Key: "x", Value: 1}})
	require.NoError(t, err)
	for _, test := range []struct {
		name   string
		events [][]projection.Write
		folded int // how many of the events fold into one update
		want   []projection.Op
	}{
		{
			"counters add up",
			[][]projection.Write{
				upsert(projection.Inc("n", 1), projection.Inc("t.a", 1)), upsert(projection.Inc("n", 2), projection.Inc("t.b", 1)),
				upsert(projection.Inc("n", -1), projection.Inc("t.a", 1)),
			},
			3,
			[]projection.Op{projection.Inc("n", 2), projection.Inc("t.a", 2), projection.Inc("t.b", 1)},
		},
		{
			"the last value stays, the first of a new document too",
			[][]projection.Write{
				upsert(projection.SetOnInsert("first", 1), projection.Set("last", 1)), upsert(projection.SetOnInsert("first", 2), projection.Set("last", 2)),
			},
			2,
			[]projection.Op{projection.SetOnInsert("first", 1), projection.Set("last", 2)},
		},
		{
			"only the first event can make the document",
			[][]projection.Write{
				upsert(projection.Set("x", 1)), upsert(projection.SetOnInsert("first", 2)),
			},
			2,
			[]projection.Op{projection.Set("x", 1)},
		},
		{
			"also when events without effect come first",
			[][]projection.Write{
				nil, upsert(projection.SetOnInsert("first", 1)), nil,
			},
			3,
			[]projection.Op{projection.SetOnInsert("first", 1)},
		},
		{
			"set and add",
			[][]projection.Write{
				upsert(projection.Set("n", int64(5))), upsert(projection.Inc("n", 2)), upsert(projection.Unset("n")),
			},
			3,
			[]projection.Op{projection.Unset("n")},
		},
		{
			"smallest and largest",
			[][]projection.Write{
				upsert(projection.Min("lo", int64(5)), projection.Max("hi", "a"), projection.Max("at", at)),
				upsert(projection.Min("lo", int64(3)), projection.Max("hi", "c"), projection.Max("at", at.Add(time.Nanosecond))),
				upsert(projection.Min("lo", int64(4)), projection.Max("hi", "b"), projection.Max("at", at.Add(-time.Hour))),
			},
			3,
			[]projection.Op{projection.Min("lo", int64(3)), projection.Max("hi", "c"), projection.Max("at", at)},
		},
		{"adding to text", [][]projection.Write{upsert(projection.Set("n", "x")), upsert(projection.Inc("n", 1))}, 1, []projection.Op{projection.Set("n", "x")}},
		{
			"a sum that overflows",
			[][]projection.Write{upsert(projection.Inc("n", math.MaxInt64)), upsert(projection.Inc("n", 1))},
			1,
			[]projection.Op{projection.Inc("n", math.MaxInt64)},
		},
		{
			"adding to a value that is set only in a new document",
			[][]projection.Write{upsert(projection.SetOnInsert("n", int64(1))), upsert(projection.Inc("n", 1))},
			1,
			[]projection.Op{projection.SetOnInsert("n", int64(1))},
		},
		{
			"the largest of what was set",
			[][]projection.Write{
				upsert(projection.Set("hi", int64(5)), projection.Set("lo", "b")), upsert(projection.Max("hi", int64(7)), projection.Min("lo", "c")),
				upsert(projection.Max("hi", int64(6)), projection.Min("lo", "a")),
			},
			3,
			[]projection.Op{projection.Set("hi", int64(7)), projection.Set("lo", "a")},
		},
		{"a product, then a sum", [][]projection.Write{upsert(projection.Mul("n", int64(2))), upsert(projection.Inc("n", 1))}, 1, []projection.Op{projection.Mul("n", int64(2))}},
		{"two products", [][]projection.Write{upsert(projection.Mul("n", int64(0))), upsert(projection.Mul("n", int64(2)))}, 1, []projection.Op{projection.Mul("n", int64(0))}},
		{"a product, then a value", [][]projection.Write{upsert(projection.Mul("n", int64(2))), upsert(projection.Set("n", 1))}, 1, []projection.Op{projection.Mul("n", int64(2))}},
		{"members of a set", [][]projection.Write{upsert(projection.AddToSet("l", 1)), upsert(projection.AddToSet("l", 2))}, 1, []projection.Op{projection.AddToSet("l", 1)}},
		{"a member that goes again", [][]projection.Write{upsert(projection.AddToSet("l", 1)), upsert(projection.Pull("l", 1))}, 1, []projection.Op{projection.AddToSet("l", 1)}},
		{"values of two kinds", [][]projection.Write{upsert(projection.Min("n", int64(1))), upsert(projection.Min("n", "x"))}, 1, []projection.Op{projection.Min("n", int64(1))}},
		{"inside a field that is set", [][]projection.Write{upsert(projection.Set("a", bson.D{})), upsert(projection.Set("a.b", 1))}, 1, []projection.Op{projection.Set("a", bson.D{})}},
		{"around a field that is set", [][]projection.Write{upsert(projection.Set("a.b.c", 1)), upsert(projection.Unset("a"))}, 1, []projection.Op{projection.Set("a.b.c", 1)}},
		{"a name that begins alike", [][]projection.Write{upsert(projection.Set("a", 1)), upsert(projection.Set("ab.c", 1))}, 2, []projection.Op{projection.Set("a", 1), projection.Set("ab.c", 1)}},
		{"an update that must not make the document, then one that may", [][]projection.Write{existing(projection.Inc("n", 1)), upsert(projection.Inc("n", 1))}, 1, []projection.Op{projection.Inc("n", 1)}},
		{"the other way round", [][]projection.Write{upsert(projection.Inc("n", 1)), existing(projection.Inc("n", 1))}, 2, []projection.Op{projection.Inc("n", 2)}},
		{
			"a whole document wipes out what was before, and takes no update", [][]projection.Write{
				upsert(projection.Inc("n", 1)), {projection.Replace("c", "a", document)}, upsert(projection.Inc("n", 1)),
			}, 2, nil,
		},
		{
			"an event is folded in whole or not at all",
			[][]projection.Write{
				upsert(projection.Inc("n", 1), projection.Set("x.y", 1)),
				{
					projection.Update("c", "a", projection.Inc("n", 1), projection.Set("z.z", 1), projection.Set("x.y", 2)),
					projection.Replace("c", "a", document), projection.Update("c", "a", projection.Inc("n", 1)),
				},
			},
			1,
			[]projection.Op{projection.Inc("n", 1), projection.Set("x.y", 1)},
		},
		{"a field that made others around it, and goes", [][]projection.Write{upsert(projection.Set("a.b", 1)), upsert(projection.Unset("a.b"))}, 1, []projection.Op{projection.Set("a.b", 1)}},
		{"in order: the same fields", [][]projection.Write{inOrder(projection.Set("z", 1)), inOrder(projection.Set("z", 2), projection.Set("zz", 2))}, 2, []projection.Op{projection.Set("z", 2), projection.Set("zz", 2)}},
		{"in order: a field that would come before", [][]projection.Write{inOrder(projection.Set("b", 1)), inOrder(projection.Set("a", 1))}, 1, []projection.Op{projection.Set("b", 1)}},
		{"in order: one inside another", [][]projection.Write{inOrder(projection.Set("b.z", 1)), inOrder(projection.Set("b.a", 1))}, 1, []projection.Op{projection.Set("b.z", 1)}},
		{"in order: a name that begins alike", [][]projection.Write{inOrder(projection.Set("a.z", 1)), inOrder(projection.Set("a-b", 1))}, 2, []projection.Op{projection.Set("a.z", 1), projection.Set("a-b", 1)}},
		{"in order: numbers, of which not all servers think alike", [][]projection.Write{inOrder(projection.Set("n.9", 1)), inOrder(projection.Set("n.10", 1))}, 1, []projection.Op{projection.Set("n.9", 1)}},
		{"in order: a field that is removed and set again", [][]projection.Write{inOrder(projection.Unset("b")), inOrder(projection.Set("b", 1))}, 1, []projection.Op{projection.Unset("b")}},
		{"in order: one update may make any", [][]projection.Write{inOrder(projection.Set("b", 1), projection.Set("a", 1))}, 1, []projection.Op{projection.Set("b", 1), projection.Set("a", 1)}},
		{"an array that is cut", [][]projection.Write{existing(projection.Truncate("l", 2)), existing(projection.Set("l", 1))}, 1, []projection.Op{projection.Truncate("l", 2)}},
		{"an event that contradicts itself", [][]projection.Write{upsert(projection.Set("a", 1), projection.Set("a.b", 1))}, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, n := new(Fold), 0
			for _, writes := range test.events {
				if !f.Add(writes) {
					break
				}
				n++
			}
			require.Equal(t, test.folded, n)
			require.Len(t, f.ops, len(test.want))
			if test.want != nil {
				require.Equal(t, test.want, f.ops)
			}
		})
	}
}
