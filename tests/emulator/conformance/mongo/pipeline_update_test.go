package mongo_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// MongoDB 6.0.5 describes updates by a pipeline that move fields like this: from the first moved
// field on, all fields are reported, whether or not they have changed.
func TestSeenDescriptionsOfPipelinesThatMoveFields(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 5, 0)
	in, list := d("x", int32(1), "y", int32(2), "z", int32(3)), bson.A{int32(1), d("p", int32(1), "q", int32(2)), int32(3)}
	before := d("_id", 1, "long", strings.Repeat("x", 200), "a", 1, "b", 2, "c", 3, "in", in, "list", list)
	becomes := func(pairs ...any) bson.A {
		return bson.A{d("$replaceWith", d(append([]any{"_id", "$_id", "long", "$long"}, pairs...)...))}
	}
	ends := func(pairs ...any) bson.A { return becomes(append(pairs, "in", "$in", "list", "$list")...) }
	changed := func(pairs ...any) bson.D { return d(append(pairs, "in", in, "list", list)...) }
	for name, c := range map[string]struct {
		update bson.A
		want   bson.D
	}{
		"two change places":             {ends("b", "$b", "a", "$a", "c", "$c"), changed("a", int32(1), "c", int32(3))},
		"three change places":           {ends("c", "$c", "b", "$b", "a", "$a"), changed("b", int32(2), "a", int32(1))},
		"the last comes first":          {ends("c", "$c", "a", 9, "b", "$b"), changed("a", int32(9), "b", int32(2))},
		"none moves":                    {ends("a", 9, "b", "$b", "c", "$c"), d("a", int32(9))},
		"a new one in front":            {ends("n", 5, "a", "$a", "b", "$b", "c", "$c"), changed("n", int32(5), "a", int32(1), "b", int32(2), "c", int32(3))},
		"a new one in between":          {ends("a", "$a", "n", 5, "b", "$b", "c", "$c"), changed("n", int32(5), "b", int32(2), "c", int32(3))},
		"one goes":                      {ends("a", "$a", "c", "$c"), d()},
		"new ones at the end":           {bson.A{d("$set", d("z", 1, "y", 2, "a", 7, "in.w", 1, "in.b", 1))}, d("a", int32(7), "z", int32(1), "y", int32(2), "in.w", int32(1), "in.b", int32(1))},
		"within a document":             {bson.A{d("$set", d("in", d("$literal", d("z", 1, "x", 1))))}, d("in", d("z", int32(1), "x", int32(1)))},
		"within a document of a list":   {bson.A{d("$set", d("list", bson.A{1, d("q", 2, "p", 1), 3}))}, d("list.1", d("q", int32(2), "p", int32(1)))},
		"a list that is changed as one": {bson.A{d("$set", d("list", bson.A{1, d("q", 3, "p", 1)}))}, d("list", bson.A{int32(1), d("q", int32(3), "p", int32(1))})},
		"a list that grows":             {bson.A{d("$set", d("list", d("$concatArrays", bson.A{"$list", bson.A{4, 5}})))}, d("list.3", int32(4), "list.4", int32(5))},
		"a list that is turned around":  {bson.A{d("$set", d("list", d("$reverseArray", "$list")))}, d("list.0", int32(3), "list.2", int32(1))},
	} {
		t.Run(name, func(t *testing.T) {
			kind, got := describe(t, f.coll(), before, c.update)
			require.Equal(t, "update", kind)
			require.Equal(t, c.want, got)
		})
	}
}

// Two updates with the same description can leave documents with a different order of fields: a
// copy that is made from descriptions alone has the order of the source only if no pipeline moves
// fields.
func TestADescriptionDoesNotContainTheOrderOfFields(t *testing.T) {
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
