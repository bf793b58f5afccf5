package mongo_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// large makes one update event of more than 16 MB: 10 MB before, 10 MB after.
func large(t *testing.T, f *fixture) *driver.Collection {
	t.Helper()
	f.command(t, "db", d("create", "c", "changeStreamPreAndPostImages", d("enabled", true)))
	c := f.coll()
	_, err := c.InsertOne(t.Context(), d("_id", 1, "v", strings.Repeat("a", 10<<20)))
	require.NoError(t, err)
	return c
}

var splitting = driver.Pipeline{d("$changeStreamSplitLargeEvent", d())}

func imagesOn() *options.ChangeStreamOptionsBuilder {
	return options.ChangeStream().SetFullDocument(options.Required).SetFullDocumentBeforeChange(options.Required)
}

func TestSplitLargeEvent(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 7, 0) // and 6.0.9
	c := large(t, f)
	cs, err := c.Watch(t.Context(), splitting, imagesOn())
	require.NoError(t, err)
	closing(t, cs)
	_, err = c.UpdateByID(t.Context(), 1, d("$set", d("v", strings.Repeat("b", 5<<20))))
	require.NoError(t, err)
	_, err = c.InsertOne(t.Context(), d("_id", 2))
	require.NoError(t, err)

	first := next(t, cs)
	token := cs.ResumeToken()
	require.Equal(t, bson.D{{Key: "fragment", Value: int32(1)}, {Key: "of", Value: int32(2)}}, first["splitEvent"])
	require.Equal(t, "update", first["operationType"])
	second := next(t, cs)
	require.Equal(t, bson.D{{Key: "fragment", Value: int32(2)}, {Key: "of", Value: int32(2)}}, second["splitEvent"])
	require.Less(t, token.Lookup("_data").StringValue(), cs.ResumeToken().Lookup("_data").StringValue())
	fields := map[string]bool{}
	for _, fragment := range []bson.M{first, second} {
		for k := range fragment {
			require.True(t, k == "_id" || k == "splitEvent" || !fields[k], "%s is in two fragments", k)
			fields[k] = true
		}
	}
	for _, k := range []string{"fullDocument", "fullDocumentBeforeChange", "updateDescription", "ns", "documentKey", "clusterTime", "wallTime"} {
		require.True(t, fields[k], k)
	}
	require.Equal(t, int32(2), next(t, cs)["documentKey"].(bson.D)[0].Value)

	again, err := c.Watch(t.Context(), splitting, imagesOn().SetResumeAfter(token))
	require.NoError(t, err)
	closing(t, again)
	resumed := next(t, again)
	require.Equal(t, second["_id"], resumed["_id"])
	require.Equal(t, second["splitEvent"], resumed["splitEvent"])
	require.Equal(t, int32(2), next(t, again)["documentKey"].(bson.D)[0].Value)

	_, err = c.Watch(t.Context(), driver.Pipeline{d("$match", d()), d("$project", d("fullDocument", 0)), splitting[0]}, imagesOn().SetResumeAfter(token))
	require.Equal(t, int32(280), commandError(t, err).Code)
}

func TestLargeEventWithoutSplitFails(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 6, 0)
	c := large(t, f)
	cs, err := c.Watch(t.Context(), driver.Pipeline{}, imagesOn())
	require.NoError(t, err)
	closing(t, cs)
	_, err = c.UpdateByID(t.Context(), 1, d("$set", d("v", strings.Repeat("b", 10<<20))))
	require.NoError(t, err)
	require.False(t, cs.Next(t.Context()))
	require.Equal(t, int32(10334), commandError(t, cs.Err()).Code)
}

func TestSplitStageHasItsPlace(t *testing.T) {
	f := serve(t, mongo.Options{})
	f.requires(t, 7, 0) // and 6.0.9
	_, err := f.coll().Watch(t.Context(), driver.Pipeline{splitting[0], d("$match", d())})
	require.Equal(t, int32(7182802), commandError(t, err).Code)
	_, err = f.coll().Watch(t.Context(), driver.Pipeline{d("$changeStreamSplitLargeEvent", d("x", 1))})
	require.Equal(t, int32(7182800), commandError(t, err).Code)
}

func commandError(t *testing.T, err error) driver.CommandError {
	t.Helper()
	var e driver.CommandError
	require.ErrorAs(t, err, &e)
	return e
}
