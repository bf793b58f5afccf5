package changes

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// doc returns a document of the aggregate at a version.
func doc(aggregate string, version int) bson.D {
	return bson.D{{Key: "order", Value: bson.D{{Key: "id", Value: aggregate}}}, {Key: "version", Value: version}}
}

func eventOf(operation string, fields ...bson.E) bson.D {
	return append(bson.D{
		{Key: "operationType", Value: operation},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: "k"}}},
	}, fields...)
}

func before(d any) bson.E { return bson.E{Key: "fullDocumentBeforeChange", Value: d} }
func after(d any) bson.E  { return bson.E{Key: "fullDocument", Value: d} }

// G2 and G3: the aggregate does not depend on a fetched document, or on an image that is not
// requested.
func TestG2G3AnAggregateIsTheSameAtEveryReading(t *testing.T) {
	images := mapping()
	post := mapping()
	post.Images, post.PostImages = Images{After: true}, true
	byKey := mapping()
	byKey.Images, byKey.ByKey = Images{}, true
	required := mapping()
	required.ByKey = true
	sharded := mapping()
	sharded.Images = Images{}
	for _, test := range []struct {
		name    string
		mapping Mapping
		event   bson.D
		want    string
	}{
		{"an insert", images, eventOf("insert", after(doc("o-1", 1))), "o-1"},
		{"a replace", images, eventOf("replace", after(doc("o-1", 1)), before(doc("o-2", 1))), "o-1"},
		{"a delete's image", images, eventOf("delete", before(doc("o-1", 1))), "o-1"},
		{"an update's image, not what was looked up", images, eventOf("update", before(doc("o-1", 1)), after(doc("o-2", 2))), "o-1"},
		{"an update whose document is gone", images, eventOf("update", before(doc("o-1", 1)), after(nil)), "o-1"},
		{"an update's image afterwards", post, eventOf("update", after(doc("o-1", 1))), "o-1"},
		{"an image without the path", images, eventOf("delete", before(bson.D{{Key: "x", Value: 1}})), "k"},
		{"an update by its key, whatever is looked up", byKey, eventOf("update", before(doc("o-1", 1)), after(doc("o-1", 2))), "k"},
		{"a delete by its key, though there is an image today", byKey, eventOf("delete", before(doc("o-1", 1))), "k"},
		{"an insert beside updates that go by their key", byKey, eventOf("insert", after(doc("o-1", 1))), "o-1"},
		{"a required image", required, eventOf("delete", before(doc("o-1", 1))), "o-1"},
		{"a shard key by its whole path", sharded, bson.D{
			{Key: "operationType", Value: "delete"},
			{Key: "documentKey", Value: bson.D{{Key: "order.id", Value: "o-1"}, {Key: "_id", Value: "k"}}},
		}, "o-1"},
		{"a nested shard key", sharded, bson.D{
			{Key: "operationType", Value: "delete"},
			{Key: "documentKey", Value: bson.D{{Key: "order", Value: bson.D{{Key: "id", Value: "o-1"}}}, {Key: "_id", Value: "k"}}},
		}, "o-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, mapped(t, test.mapping, test.event).Aggregate)
		})
	}
}

// G6: a change without its image has no aggregate, and the error includes what to do.
func TestG6AChangeWithoutItsImageIsRefused(t *testing.T) {
	none := mapping()
	none.Images = Images{}
	post := mapping()
	post.Images = Images{After: true}
	for _, test := range []struct {
		name    string
		mapping Mapping
		event   bson.D
		want    string
	}{
		{"a delete's is missing", mapping(), eventOf("delete"), "expired since"},
		{"an update's is missing, though the document was looked up", mapping(), eventOf("update", before(nil), after(doc("o-1", 2))), "expired since"},
		{"an update's afterwards is missing", post, eventOf("update", after(nil)), "expired since"},
		{"a delete has none afterwards", post, eventOf("delete"), "FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable"},
		{"none is asked for", none, eventOf("update", after(doc("o-1", 2))), "ON_UNKNOWN_AGGREGATE=documentKey"},
	} {
		t.Run(test.name, func(t *testing.T) {
			event := append(bson.D{{Key: "_id", Value: bson.D{{Key: "_data", Value: token}}}}, test.event...)
			_, err := test.mapping.change(raw(t, event), token, "n1")
			require.ErrorIs(t, err, ErrUnknownAggregate)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// G2: a fetched version may belong to a later change, and would look like a gap.
func TestG2AVersionIsTheSameAtEveryReading(t *testing.T) {
	m := mapping()
	post := mapping()
	post.PostImages = true
	m.VersionPath, post.VersionPath = "meta.version", "meta.version"
	wrote := func(fields bson.D) bson.E {
		return bson.E{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: fields}}}
	}
	versioned := func(n int) bson.D {
		return append(doc("o-1", 0), bson.E{Key: "meta", Value: bson.D{{Key: "version", Value: n}}})
	}
	for _, test := range []struct {
		name    string
		mapping Mapping
		event   bson.D
		want    int64
	}{
		{"an insert", m, eventOf("insert", after(versioned(1))), 1},
		{"a delete", m, eventOf("delete", before(versioned(3))), 3},
		{"what an update wrote", m, eventOf("update", before(versioned(1)), after(versioned(9)), wrote(bson.D{{Key: "meta.version", Value: 2}})), 2},
		{"what an update wrote as a whole", m, eventOf("update", before(versioned(1)), wrote(bson.D{{Key: "meta", Value: bson.D{{Key: "version", Value: 2}}}})), 2},
		{"what is looked up", m, eventOf("update", before(versioned(1)), after(versioned(9))), 0},
		{"an image afterwards", post, eventOf("update", before(versioned(1)), after(versioned(2))), 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, mapped(t, test.mapping, test.event).Version)
		})
	}
}

// If no image can be missing, the collection is not queried.
func TestImagesAreNeededOnlyIfTheyDecide(t *testing.T) {
	m := mapping()
	require.True(t, m.needsImages())
	inserts := mapping()
	inserts.Operations = []envelope.Operation{envelope.Insert, envelope.Replace}
	require.False(t, inserts.needsImages())
	byKey := mapping()
	byKey.ByKey = true
	require.False(t, byKey.needsImages())
	byID := mapping()
	byID.AggregatePath = "_id.tenant"
	require.False(t, byID.needsImages())
	require.Equal(t, "documentKey", byID.Source(envelope.Update))

	require.True(t, m.imagesCoverAll())
	m.Images = Images{After: true}
	require.False(t, m.imagesCoverAll(), "a delete has no image after it")
	m.Operations = []envelope.Operation{envelope.Insert, envelope.Update}
	require.True(t, m.imagesCoverAll())
}

// G3: the message of an update records whether its document is the update's own or was looked up.
func TestG3AnUpdateMarksALookedUpDocument(t *testing.T) {
	post := mapping()
	post.PostImages = true
	update, gone := eventOf("update", after(doc("o-1", 0))), eventOf("update", bson.E{Key: "fullDocument", Value: nil})
	for _, test := range []struct {
		mapping Mapping
		event   bson.D
		want    bool
	}{{post, update, true}, {mapping(), update, false}, {post, gone, false}, {post, eventOf("insert", after(doc("o-1", 0))), false}} {
		test.mapping.AggregatePath = "_id"
		c, err := test.mapping.change(raw(t, test.event), token, "n1")
		require.NoError(t, err)
		require.Equal(t, test.want, c.PostImage)
	}
}

// With ON_UNKNOWN_AGGREGATE=documentKey all updates and deletes are keyed by documentKey._id, even
// after the collection is sharded by the aggregate id, which then is in the key as well.
func TestByKeyShardingMovesNoUpdate(t *testing.T) {
	m := mapping()
	m.AggregatePath, m.Images, m.ByKey = "order", Images{}, true
	for _, operation := range []string{"update", "delete"} {
		for _, key := range []bson.D{{{Key: "_id", Value: "k"}}, {{Key: "order", Value: "o-1"}, {Key: "_id", Value: "k"}}} {
			event := bson.D{{Key: "operationType", Value: operation}, {Key: "documentKey", Value: key}}
			require.Equal(t, "k", mapped(t, m, event).Aggregate)
		}
	}
}
