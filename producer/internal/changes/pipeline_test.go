package changes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestPipelinesThatKeepRequiredFieldsAreAccepted(t *testing.T) {
	for _, text := range []string{
		``, `[]`,
		`[{"$match": {"operationType": {"$in": ["insert", "delete"]}, "fullDocument.total": {"$gt": {"$numberLong": "5"}}}}]`,
		`[{"$project": {"operationType": 1, "documentKey": true, "clusterTime": 1, "fullDocument.aggregateId": 1}}]`,
		`[{"$project": {"_id": "$_id", "operationType": "$operationType", "documentKey": 1, "clusterTime": 1}}]`,
		`[{"$project": {"fullDocument.secret": 0, "wallTime": false}}]`,
		`[{"$project": {"_id": 1, "wallTime": 0}}]`,
		`[{"$addFields": {"fullDocument.tenant": "x"}}, {"$set": {"ns.coll": "other"}}]`,
		`[{"$unset": "updateDescription"}, {"$unset": ["fullDocument.secret", "ns"]}]`,
		`[{"$replaceRoot": {"newRoot": {"$mergeObjects": ["$$ROOT", {"source": "shop"}]}}}]`,
		`[{"$replaceWith": {"_id": "$_id", "operationType": "$operationType", "documentKey": "$documentKey",
		   "clusterTime": "$clusterTime", "fullDocument": {"total": "$fullDocument.total"}}}]`,
	} {
		_, err := ParsePipeline(text)
		require.NoError(t, err, text)
	}
	p, err := ParsePipeline(`[{"$match": {"a": {"$oid": "65e1a3f0c2b7a94d1e8f0a12"}}}, {"$unset": "b"}]`)
	require.NoError(t, err)
	id, _ := bson.ObjectIDFromHex("65e1a3f0c2b7a94d1e8f0a12")
	require.Equal(t, mongo.Pipeline{widenMatch(bson.D{{Key: "a", Value: id}}), {{Key: "$unset", Value: "b"}}}, p)
}

// G6: a pipeline that removes data that a message needs, or that might, never starts.
func TestG6PipelinesThatLoseRequiredFieldsAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"$match": {}}`, "not an Extended JSON array"},
		{`[{"$match": {}`, "not an Extended JSON array"},
		{`[{"$match": {}}, {}]`, "stage 2 must have exactly one field"},
		{`[{"$group": {"_id": 1}}]`, "stage 1: $group is not one of"},
		{`[{"$redact": "$$KEEP"}]`, "$redact is not one of"},
		{`[{"$changeStreamSplitLargeEvent": {}}]`, "is not one of"},
		{`[{"$match": 1}]`, "must be a document"},
		{`[{"$project": {"_id": 0}}]`, "must keep _id as it is"},
		{`[{"$project": {"_id": 0, "operationType": 1, "documentKey": 1, "clusterTime": 1}}]`, "must keep _id as it is"},
		{`[{"$project": {"documentKey": 0}}]`, "must keep documentKey as it is"},
		{`[{"$project": {"documentKey._id": 0}}]`, "must keep documentKey as it is, not documentKey._id alone"},
		{`[{"$project": {"_id._data": 1, "operationType": 1, "documentKey": 1, "clusterTime": 1}}]`, "not _id._data alone"},
		{`[{"$project": {"fullDocument": 1, "documentKey": 1, "clusterTime": 1}}]`, `must include operationType (add "operationType": 1)`},
		{`[{"$project": {"operationType": "$ns.db", "documentKey": 1, "clusterTime": 1}}]`, "must keep operationType as it is"},
		{`[{"$set": {"documentKey._id": 1}}]`, "must not set documentKey._id"},
		{`[{"$addFields": {"_id": "$documentKey._id"}}]`, "must not set _id"},
		{`[{"$unset": "clusterTime"}]`, "must not drop clusterTime"},
		{`[{"$unset": ["ns", "_id"]}]`, "must not drop _id"},
		{`[{"$unset": [1]}]`, "must be a field's name"},
		{`[{"$replaceRoot": "$fullDocument"}]`, "must be {newRoot"},
		{`[{"$replaceRoot": {"newRoot": "$fullDocument"}}]`, "must be {$mergeObjects"},
		{`[{"$replaceWith": {"_id": "$_id", "operationType": "$operationType", "documentKey": "$documentKey"}}]`, "must keep clusterTime"},
		{`[{"$replaceWith": {"$mergeObjects": ["$fullDocument", "$$ROOT"]}}]`, `begins with "$$ROOT"`},
		{`[{"$replaceWith": {"$mergeObjects": ["$$ROOT", "$fullDocument"]}}]`, "must have literal fields"},
		{`[{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"_id": 1}]}}]`, "must not set _id"},
		{`[{"$unset": "_id"}, {"$set": {"documentKey": 1}}]`, "stage 1 ($unset) must not drop _id: _id is needed as it is; stage 2 ($set)"},
	} {
		_, err := ParsePipeline(c.text)
		require.ErrorContains(t, err, c.want, c.text)
	}
}

func TestOnlyFiltersOnLookedUpDocumentsAreUnstable(t *testing.T) {
	lookup := Config{FullDocument: options.UpdateLookup}
	for text, want := range map[string]bool{
		``: false,
		`[{"$match": {"operationType": "insert"}}]`:                                                                    false,
		`[{"$unset": "fullDocument.secret"}]`:                                                                          false,
		`[{"$match": {"fullDocument.type": "x"}}]`:                                                                     true,
		`[{"$set": {"kind": "$fullDocument.type"}}, {"$match": {"kind": "x"}}]`:                                        true,
		`[{"$match": {"$expr": {"$gt": [{"$size": {"$objectToArray": "$$ROOT"}}, 5]}}}]`:                               true,
		`[{"$match": {"$or": [{"operationType": "delete"}, {"$and": [{"fullDocumentBeforeChange.x": {"$ne": 1}}]}]}}]`: true,
	} {
		var err error
		lookup.Pipeline, err = ParsePipeline(text)
		require.NoError(t, err)
		require.Equal(t, want, lookup.UnstableFilter(), text)
		require.False(t, Config{Pipeline: lookup.Pipeline, FullDocument: options.Required}.UnstableFilter(), text)
		require.False(t, Config{Pipeline: lookup.Pipeline}.UnstableFilter(), text)
	}
}

// The hash changes with everything that decides which events are delivered, and with nothing else.
func TestSettingsHashCoversWhatIsCounted(t *testing.T) {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(t.Context())) })
	hash := func(collection, pipeline string, change func(*Config)) string {
		c := Config{FullDocument: options.UpdateLookup}
		c.Pipeline, err = ParsePipeline(pipeline)
		require.NoError(t, err)
		if change != nil {
			change(&c)
		}
		sum, err := c.SettingsHash(client.Database("shop").Collection(collection))
		require.NoError(t, err)
		return sum
	}
	filter := `[{"$match": {"operationType": "insert"}}]`
	require.Equal(t, hash("a", filter, nil), hash("a", strings.ReplaceAll(filter, " ", ""), nil))
	require.NotEqual(t, hash("a", "", nil), hash("b", "", nil))
	require.NotEqual(t, hash("a", "", nil), hash("a", filter, nil))
	require.Equal(t, hash("a", "", nil), hash("a", "", func(c *Config) { c.FullDocument = "" }))
	require.NotEqual(t, hash("a", filter, nil), hash("a", filter, func(c *Config) { c.FullDocument = "" }))
	require.Equal(t, hash("a", filter, nil), hash("a", filter, func(c *Config) { c.Mapping.Operations = nil; c.Epoch = 7 }))
}
