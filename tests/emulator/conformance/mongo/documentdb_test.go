package mongo_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// What Azure DocumentDB does not give is not given: a reader that needs it fails here.
func TestDocumentDBLacksFeatures(t *testing.T) {
	f := serve(t, mongo.Options{DocumentDB: true})
	stream, err := f.coll().Watch(t.Context(), driver.Pipeline{})
	require.NoError(t, err)
	require.Nil(t, stream.ResumeToken(), "none before the first event")
	_, err = f.coll().InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)
	_, err = f.coll().UpdateByID(t.Context(), 1, bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: 2}}}})
	require.NoError(t, err)
	require.True(t, stream.Next(t.Context()))
	first := stream.ResumeToken()
	require.NotRegexp(t, regexp.MustCompile("^[0-9A-F]+$"), first.Lookup("_data").StringValue())
	require.True(t, stream.Next(t.Context()))
	event := stream.Current
	require.Equal(t, "update", event.Lookup("operationType").StringValue())
	require.EqualValues(t, 2, event.Lookup("fullDocument", "a").AsInt64(), "unasked")
	for _, missing := range []string{"updateDescription", "clusterTime", "wallTime"} {
		_, err := event.LookupErr(missing)
		require.Error(t, err, missing)
	}
	require.NoError(t, stream.Close(t.Context()))

	again, err := f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(first))
	require.NoError(t, err)
	require.True(t, again.Next(t.Context()))
	require.Equal(t, event, again.Current)
	require.NoError(t, again.Close(t.Context()))

	_, err = f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetFullDocumentBeforeChange(options.WhenAvailable))
	require.ErrorContains(t, err, "fullDocumentBeforeChange")
	_, err = f.coll().Watch(t.Context(), driver.Pipeline{{{Key: "$replaceRoot", Value: bson.D{}}}})
	require.ErrorContains(t, err, "$replaceRoot")
	_, err = f.coll().Watch(t.Context(), driver.Pipeline{}, options.ChangeStream().SetResumeAfter(bson.D{{Key: "_data", Value: "8201"}}))
	require.ErrorContains(t, err, "resume token")
}
