package mongo_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// What MongoDB 6.0.5 was seen to say of updates by a pipeline that move fields: from the first one on that stands elsewhere, all are told,
// whether or not they have changed.
func TestSeenWhatAPipelineThatMovesFieldsSaysOfItself(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0)
	in, list := d("x", int32(1), "y", int32(2), "z", int32(3)), bson.A{int32(1), d("p", int32(1), "q", int32(2)), int32(3)}
	before := d("_id", 1, "long", strings.Repeat("x", 200), "a", 1, "b", 2, "c", 3, "in", in, "list", list)
	becomes := func(pairs ...any) bson.A {
		return bson.A{d("$replaceWith", d(append([]any{"_id", "$_id", "long", "$long"}, pairs...)...))}
	}
	ends := func(pairs ...any) bson.A { return becomes(append(pairs, "in", "$in", "list", "$list")...) }
	told := func(pairs ...any) bson.D { return d(append(pairs, "in", in, "list", list)...) }
	for name, c := range map[string]struct {
		update bson.A
		want   bson.D
	}{
		"two change places":            {ends("b", "$b", "a", "$a", "c", "$c"), told("a", int32(1), "c", int32(3))},
		"three change places":          {ends("c", "$c", "b", "$b", "a", "$a"), told("b", int32(2), "a", int32(1))},
		"the last comes first":         {ends("c", "$c", "a", 9, "b", "$b"), told("a", int32(9), "b", int32(2))},
		"none moves":                   {ends("a", 9, "b", "$b", "c", "$c"), d("a", int32(9))},
		"a new one in front":           {ends("n", 5, "a", "$a", "b", "$b", "c", "$c"), told("n", int32(5), "a", int32(1), "b", int32(2), "c", int32(3))},
		"a new one in between":         {ends("a", "$a", "n", 5, "b", "$b", "c", "$c"), told("n", int32(5), "b", int32(2), "c", int32(3))},
		"one goes":                     {ends("a", "$a", "c", "$c"), d()},
		"new ones at the end":          {bson.A{d("$set", d("z", 1, "y", 2, "a", 7, "in.w", 1, "in.b", 1))}, d("a", int32(7), "z", int32(1), "y", int32(2), "in.w", int32(1), "in.b", int32(1))},
		"within a document":            {bson.A{d("$set", d("in", d("$literal", d("z", 1, "x", 1))))}, d("in", d("z", int32(1), "x", int32(1)))},
		"within a document of a list":  {bson.A{d("$set", d("list", bson.A{1, d("q", 2, "p", 1), 3}))}, d("list.1", d("q", int32(2), "p", int32(1)))},
		"a list that is told as one":   {bson.A{d("$set", d("list", bson.A{1, d("q", 3, "p", 1)}))}, d("list", bson.A{int32(1), d("q", int32(3), "p", int32(1))})},
		"a list that grows":            {bson.A{d("$set", d("list", d("$concatArrays", bson.A{"$list", bson.A{4, 5}})))}, d("list.3", int32(4), "list.4", int32(5))},
		"a list that is turned around": {bson.A{d("$set", d("list", d("$reverseArray", "$list")))}, d("list.0", int32(3), "list.2", int32(1))},
	} {
		t.Run(name, func(t *testing.T) {
			kind, got := describe(t, f.coll(), before, c.update)
			require.Equal(t, "update", kind)
			require.Equal(t, c.want, got)
		})
	}
}

// Two updates that say the same of themselves leave documents of another order: what is made of such descriptions alone can have the
// order of the source only where no pipeline moves fields.
func TestADescriptionDoesNotTellTheOrderOfFields(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0)
	long := strings.Repeat("x", 100)
	before := d("_id", 1, "long", long, "a", 1, "b", 2)
	_, inPlace := describe(t, f.coll(), before, bson.A{d("$set", d("a", 9))})
	_, moved := describe(t, f.coll(), before, bson.A{d("$replaceWith", d("_id", "$_id", "long", "$long", "b", "$b", "a", 9))})
	require.Equal(t, d("a", int32(9)), inPlace)
	require.Equal(t, inPlace, moved)
	var now bson.D
	require.NoError(t, f.coll().FindOne(t.Context(), d()).Decode(&now))
	require.Equal(t, d("_id", int32(1), "long", long, "b", int32(2), "a", int32(9)), now)
}

// A mirror that is made of descriptions has every value of its source after any updates by pipelines; it has their order as well where
// the change carries the document, or no field was moved.
func TestAMirrorOfPipelineUpdatesHasEveryValue(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	cs, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	require.NoError(t, err)
	closing(t, cs)
	_, err = f.coll().InsertOne(t.Context(), append(d("_id", 1, "long", strings.Repeat("x", 300)), someDocument(random, 2)...))
	require.NoError(t, err)

	var described, carried memory.Store
	require.True(t, cs.Next(t.Context()), cs.Err())
	put(t, &carried, cs.Current)
	put(t, &described, cs.Current)
	updates, moves := 0, 0
	for range 400 {
		pipeline, keeps := somePipeline(random)
		result, err := f.coll().UpdateOne(t.Context(), d(), pipeline)
		require.NoError(t, err, "%v", pipeline)
		if result.ModifiedCount == 0 {
			continue
		}
		updates++
		require.True(t, cs.Next(t.Context()), cs.Err())
		put(t, &carried, cs.Current)
		put(t, &described, without(t, cs.Current, "fullDocument"))
		var source bson.D
		require.NoError(t, f.coll().FindOne(t.Context(), d()).Decode(&source))
		same, _ := carried.Get("mirror", int32(1))
		require.Equal(t, source, same, "%v", pipeline)
		copied, _ := described.Get("mirror", int32(1))
		require.Empty(t, memory.Diff(source, copied), "%v", pipeline)
		if !keeps {
			moves++
			put(t, &described, cs.Current) // from here on it is as its source again
		} else {
			require.Equal(t, source, copied, "no field was moved: %v", pipeline)
		}
	}
	require.Greater(t, updates-moves, 100)
	require.Greater(t, moves, 30)
}

// put does what a mirror does with a change.
func put(t *testing.T, copies *memory.Store, change bson.Raw) {
	t.Helper()
	writes, err := projection.Mirror{}.Project(projection.Event{Change: envelope.Change{
		Operation: envelope.Operation(change.Lookup("operationType").StringValue()), Body: change,
	}})
	require.NoError(t, err)
	for _, w := range writes {
		if u, ok := w.(projection.UpdateOne); ok && u.InOrder { // as the applier does: one after the other
			for _, op := range u.Ops {
				require.NoError(t, copies.Apply(projection.Update(u.Collection, u.ID, op)))
			}
			continue
		}
		require.NoError(t, copies.Apply(w))
	}
}

// without is an update's event without a field of it; other events stay as they are.
func without(t *testing.T, change bson.Raw, field string) bson.Raw {
	t.Helper()
	var fields bson.D
	require.NoError(t, bson.Unmarshal(change, &fields))
	if of(fields, "operationType") != "update" {
		return change
	}
	kept := bson.D{}
	for _, e := range fields {
		if e.Key != field {
			kept = append(kept, e)
		}
	}
	raw, err := bson.Marshal(kept)
	require.NoError(t, err)
	return raw
}

func someName(r *rand.Rand) string { return string(rune('a' + r.IntN(7))) }

func someDocument(r *rand.Rand, levels int) bson.D {
	out := bson.D{}
	for _, i := range r.Perm(7)[:1+r.IntN(5)] {
		out = append(out, bson.E{Key: string(rune('a' + i)), Value: someValue(r, levels)})
	}
	return out
}

func someValue(r *rand.Rand, levels int) any {
	switch kind := r.IntN(6); {
	case kind == 0 && levels > 0:
		return someDocument(r, levels-1)
	case kind == 1 && levels > 0:
		list := bson.A{}
		for range r.IntN(5) {
			list = append(list, someValue(r, levels-1))
		}
		return list
	case kind == 2:
		return strings.Repeat("s", r.IntN(30))
	default:
		return int32(r.IntN(4))
	}
}

// somePipeline is an update by a pipeline; keeps says that no field changes its place.
func somePipeline(r *rand.Rand) (pipeline bson.A, keeps bool) {
	name := someName(r)
	switch r.IntN(8) {
	case 0: // all in a new order, some gone, some new
		fields := d("_id", "$_id", "long", "$long")
		for _, i := range r.Perm(7) {
			fields = append(fields, bson.E{Key: string(rune('a' + i)), Value: "$" + string(rune('a'+i))})
		}
		return bson.A{d("$replaceWith", fields)}, false
	case 1:
		return bson.A{d("$set", d(name, d("$literal", someDocument(r, 2))))}, false // within it
	case 2:
		return bson.A{d("$unset", bson.A{name, "in" + name + "." + someName(r)})}, true
	case 3:
		list := d("$cond", bson.A{d("$isArray", "$"+name), d("$slice", bson.A{"$" + name, 1 + r.IntN(2)}), "$" + name})
		return bson.A{d("$set", d(name, list))}, true
	case 4:
		list := d("$cond", bson.A{d("$isArray", "$"+name), d("$concatArrays", bson.A{"$" + name, bson.A{someValue(r, 0)}}), "$" + name})
		return bson.A{d("$set", d(name, list))}, true
	case 5:
		return bson.A{d("$set", d(name, fmt.Sprint("v", r.IntN(9)), "new"+someName(r), someValue(r, 0)))}, true
	default:
		return bson.A{d("$set", d(name, someValue(r, 0)))}, true
	}
}
