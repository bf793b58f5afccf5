package memory_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
)

// outcome is the effect of one write on one document.
type outcome struct {
	name  string
	was   bson.D // without its _id; nil: no document
	write func(collection string) projection.Write
	is    bson.D // nil: no document, afterwards
	// refused means that the write is an error and changes nothing.
	refused bool
}

func update(ops ...projection.Op) func(string) projection.Write {
	return func(c string) projection.Write { return projection.Update(c, 1, ops...) }
}

func updateExisting(ops ...projection.Op) func(string) projection.Write {
	return func(c string) projection.Write { return projection.UpdateExisting(c, 1, ops...) }
}

func deleteIf(first projection.Condition, more ...projection.Condition) func(string) projection.Write {
	return func(c string) projection.Write { return projection.DeleteIf(c, 1, first, more...) }
}

func field(value any) bson.D { return bson.D{{Key: "v", Value: value}} }

func list(values ...any) bson.D { return field(append(bson.A{}, values...)) }

// Every operator of package projection leaves the same document in memory and on the server: types,
// digits and the order of elements. The sums and products of most types of numbers are tested in
// package memory. MONGODB_URI names the server; without it, the embedded one is used.
func TestOperatorsDoTheSameInMemoryAndOnTheServer(t *testing.T) {
	database := emptyDatabase(t, mongoClient(t))
	seen := map[projection.OpKind]bool{}
	for i, o := range outcomes() {
		t.Run(o.name, func(t *testing.T) {
			collection := database.Collection(fmt.Sprint("c", i))
			withID := func(d bson.D) bson.D { return append(bson.D{{Key: "_id", Value: 1}}, d...) }
			var store memory.Store
			if o.was != nil {
				raw, err := bson.Marshal(withID(o.was))
				require.NoError(t, err)
				require.NoError(t, store.Apply(projection.Replace(collection.Name(), 1, raw)))
				_, err = collection.InsertOne(t.Context(), withID(o.was))
				require.NoError(t, err)
			}
			w := o.write(collection.Name())
			inMemory, onServer := store.Apply(w), send(t.Context(), collection, w)
			want := o.is
			if o.refused {
				require.ErrorIs(t, inMemory, memory.ErrRefused)
				require.Error(t, onServer)
				want = o.was
			} else {
				require.NoError(t, inMemory)
				require.NoError(t, onServer)
			}
			requireSame(t, &store, collection, o.name)
			got, exists := store.Get(collection.Name(), 1)
			require.Equal(t, want != nil, exists, "%v", got)
			if exists {
				require.Empty(t, memory.Diff(stored(t, withID(want)), got))
			}
			if u, ok := w.(projection.UpdateOne); ok {
				for _, op := range u.Ops {
					require.NoError(t, op.Validate())
					seen[op.Kind] = true
				}
			}
		})
	}
	require.Len(t, seen, 11, "each operator of package projection has been seen")
}

// stored returns a document as it is read back.
func stored(t *testing.T, d bson.D) bson.D {
	t.Helper()
	raw, err := bson.Marshal(d)
	require.NoError(t, err)
	var back bson.D
	require.NoError(t, bson.Unmarshal(raw, &back))
	return back
}

func outcomes() []outcome {
	d := decimal
	x, xy, yx := bson.D{{Key: "x", Value: 1}}, bson.D{{Key: "x", Value: 1}, {Key: "y", Value: 2}}, bson.D{{Key: "y", Value: 2}, {Key: "x", Value: 1}}
	at := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	all := []outcome{
		{name: "set", was: field(1), write: update(projection.Set("v", "a")), is: field("a")},
		{name: "set on insert, of a document that is there", was: field(1), write: update(projection.SetOnInsert("v", 2)), is: field(1)},
		{name: "set on insert, of a new one", write: update(projection.SetOnInsert("v", 2)), is: field(2)},
		{name: "unset", was: field(1), write: update(projection.Unset("v")), is: bson.D{}},
		{name: "truncate", was: list(1, 2, 3), write: update(projection.Truncate("v", 2)), is: list(1, 2)},

		{name: "inc of nothing", was: bson.D{}, write: update(projection.Inc("v", 2)), is: field(int64(2))},
		{name: "inc of an int32", was: field(int32(1)), write: update(projection.Inc("v", 2)), is: field(int64(3))},
		{name: "add int32 to int32 with overflow", was: field(int32(math.MaxInt32)), write: update(projection.Add("v", int32(1))), is: field(int64(math.MaxInt32) + 1)},
		{name: "add a decimal to nothing", write: update(projection.Add("v", d("1.50"))), is: field(d("1.50"))},

		{name: "mul of nothing by an int32", was: bson.D{}, write: update(projection.Mul("v", int32(5))), is: field(int32(0))},
		{name: "mul of nothing by an int64", was: bson.D{}, write: update(projection.Mul("v", int64(5))), is: field(int64(0))},
		{name: "mul of nothing by a double", was: bson.D{}, write: update(projection.Mul("v", -1.5)), is: field(math.Copysign(0, -1))},
		{name: "mul of nothing by a decimal", was: bson.D{}, write: update(projection.Mul("v", d("1.50"))), is: field(d("0.00"))},
		{name: "mul makes a document", write: update(projection.Mul("a.v", int64(5))), is: bson.D{{Key: "a", Value: field(int64(0))}}},
		{name: "mul of int32 with overflow", was: field(int32(math.MaxInt32)), write: update(projection.Mul("v", int32(2))), is: field(int64(math.MaxInt32) * 2)},
		{name: "mul of the least int64 by -1", was: field(int64(math.MinInt64)), write: update(projection.Mul("v", int64(-1))), refused: true},

		{name: "min of nothing", was: bson.D{}, write: update(projection.Min("v", 1)), is: field(1)},
		{name: "min in a document that is not there", write: updateExisting(projection.Min("v", 1))},
		{name: "min keeps an equal number of another type", was: field(int64(1)), write: update(projection.Min("v", d("1.0"))), is: field(int64(1))},
		{name: "max of documents", was: field(x), write: update(projection.Max("v", xy)), is: field(xy)},
		{name: "max of arrays", was: list(1, 2), write: update(projection.Max("v", bson.A{1, 3})), is: list(1, 3)},
		{name: "max of dates", was: field(at), write: update(projection.Max("v", at.Add(time.Second))), is: field(at.Add(time.Second))},
		{name: "min of a number and NaN", was: field(1), write: update(projection.Min("v", math.NaN())), is: field(math.NaN())},
		{name: "max of a double and a decimal", was: field(0.1), write: update(projection.Max("v", d("0.1"))), is: field(0.1)}, // the double is a little more

		{name: "add to a set that is not there", write: update(projection.AddToSet("v", 1, 1, "a")), is: list(1, "a")},
		{name: "add nothing to a set that is not there", was: bson.D{}, write: update(projection.AddToSet("v")), is: list()},
		{name: "add to a set what it has as another type", was: list(1, "a"), write: update(projection.AddToSet("v", int64(1), 1.0, d("1.00"), "A")), is: list(1, "a", "A")},
		{name: "add to a set a document with its fields in another order", was: list(xy), write: update(projection.AddToSet("v", xy, yx)), is: list(xy, yx)},
		{name: "add to a set a document within another", was: list(xy), write: update(projection.AddToSet("v", x)), is: list(xy, x)},
		{name: "add to a set a document whose field has another name", was: list(x), write: update(projection.AddToSet("v", bson.D{{Key: "y", Value: 1}})), is: list(x, bson.D{{Key: "y", Value: 1}})},
		{name: "add to a set an array", was: list(1), write: update(projection.AddToSet("v", bson.A{1}, bson.A{1})), is: list(1, bson.A{1})},
		{name: "add to a set a document that looks like an operator", was: list(), write: update(projection.AddToSet("v", bson.D{{Key: "each", Value: 1}})), is: list(bson.D{{Key: "each", Value: 1}})},
		{name: "add to a set null", was: list(0), write: update(projection.AddToSet("v", nil, nil)), is: list(0, nil)},
		{name: "add to a set that has an element twice", was: list(1, 1), write: update(projection.AddToSet("v", 1)), is: list(1, 1)},
		{name: "add to a set that is text", was: field("a"), write: update(projection.AddToSet("v", "a")), refused: true},
		{name: "add to a set that is null", was: field(nil), write: update(projection.AddToSet("v", "a")), refused: true},

		{name: "pull a value", was: list(1, int64(1), 1.0, d("1"), 2, "1"), write: update(projection.Pull("v", 1)), is: list(2, "1")},
		{name: "pull several values", was: list(1, 2, 3), write: update(projection.Pull("v", 1, 3)), is: list(2)},
		{name: "pull a document as a whole", was: list(x, xy, yx), write: update(projection.Pull("v", xy)), is: list(x, yx)},
		{name: "pull an array", was: list(1, bson.A{1}, bson.A{1, 2}), write: update(projection.Pull("v", bson.A{1})), is: list(1, bson.A{1, 2})},
		{name: "pull null", was: list(0, nil, false), write: update(projection.Pull("v", nil)), is: list(0, false)},
		{name: "pull from nothing", was: bson.D{}, write: update(projection.Pull("v", 1)), is: bson.D{}},
		{name: "pull makes an empty document", write: update(projection.Pull("v", 1)), is: bson.D{}},
		{name: "pull from text", was: field("a"), write: update(projection.Pull("v", "a")), refused: true},
		{name: "pull inside text", was: field("a"), write: update(projection.Pull("v.w", "a")), refused: true},
		{name: "pull by name inside an array", was: list(1), write: update(projection.Pull("v.w", "a")), refused: true},
		{name: "pull beyond an array's end", was: list(1), write: update(projection.Pull("v.5", "a")), is: list(1)},

		{name: "pull where elements are below", was: list(1, 5, 9, "a", nil), write: update(projection.PullWhere("v", projection.Lt("", 5))), is: list(5, 9, "a", nil)},
		{name: "pull where elements are between", was: list(1, 5, 9.5), write: update(projection.PullWhere("v", projection.Gt("", 1), projection.Lte("", 9.5))), is: list(1)},
		{name: "pull where an array holds an element", was: list(bson.A{1, 7}, bson.A{7}), write: update(projection.PullWhere("v", projection.Eq("", 1))), is: list(bson.A{7})},
		{name: "pull where fields are", was: list(xy, x, yx, 1, "x"), write: update(projection.PullWhere("v", projection.Eq("x", 1), projection.Eq("y", 2))), is: list(x, 1, "x")},
		{name: "pull where one field meets two conditions", was: list(field(1), field(5), field(9)), write: update(projection.PullWhere("v", projection.Gte("v", 5), projection.Lt("v", 9))), is: list(field(1), field(9))},
		{name: "pull where a field is missing", was: list(xy, field(nil), 1), write: update(projection.PullWhere("v", projection.Missing("v"))), is: list(field(nil), 1)},
		{name: "pull where a field inside is", was: list(field(x), x), write: update(projection.PullWhere("v", projection.Eq("v.x", 1.0))), is: list(x)},
		{name: "pull where from nothing", was: bson.D{}, write: update(projection.PullWhere("v", projection.Eq("x", 1))), is: bson.D{}},
		{name: "pull where inside text", was: field("a"), write: update(projection.PullWhere("v.w", projection.Eq("x", 1))), refused: true},

		{name: "delete where a number is", was: field(0), write: deleteIf(projection.Lte("v", d("0.0")))},
		{name: "delete where it is not", was: field(1), write: deleteIf(projection.Lte("v", 0)), is: field(1)},
		{name: "delete where it is of another type", was: field("0"), write: deleteIf(projection.Lte("v", 0)), is: field("0")},
		{name: "delete where it is missing, and so not below", was: bson.D{}, write: deleteIf(projection.Lt("v", 0)), is: bson.D{}},
		{name: "delete where it is missing", was: bson.D{}, write: deleteIf(projection.Missing("v"))},
		{name: "delete where it is null, and so not missing", was: field(nil), write: deleteIf(projection.Missing("v")), is: field(nil)},
		{name: "delete where both are", was: xy, write: deleteIf(projection.Eq("x", 1), projection.Gt("y", 1))},
		{name: "delete where one is", was: xy, write: deleteIf(projection.Eq("x", 1), projection.Gt("y", 2)), is: xy},
		{name: "delete where an element is", was: list("a", "b"), write: deleteIf(projection.Eq("v", "b"))},
		{name: "delete where a field inside is", was: field(xy), write: deleteIf(projection.Eq("v.y", int64(2)))},
		{name: "delete where a time is past", was: field(at), write: deleteIf(projection.Lt("v", at.Add(time.Millisecond)))},
		{name: "delete what is not there", write: deleteIf(projection.Missing("v"))},
	}
	// $min and $max order types before values.
	ordered := []any{
		bson.MinKey{},
		nil, 7, "a",
		bson.D{},
		bson.A{},
		bson.Binary{Data: []byte{1}},
		bson.ObjectID{1},
		false, at,
		bson.Timestamp{T: 1},
		bson.Regex{Pattern: "a"},
		bson.MaxKey{},
	}
	for i, low := range ordered {
		for _, high := range ordered[i+1:] {
			name := fmt.Sprintf("%T and %T", low, high)
			all = append(all,
				outcome{name: "min of " + name, was: field(high), write: update(projection.Min("v", low)), is: field(low)},
				outcome{name: "min kept of " + name, was: field(low), write: update(projection.Min("v", high)), is: field(low)},
				outcome{name: "max of " + name, was: field(low), write: update(projection.Max("v", high)), is: field(high)},
				outcome{name: "max kept of " + name, was: field(high), write: update(projection.Max("v", low)), is: field(high)})
		}
	}
	return all
}
