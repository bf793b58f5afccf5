package build

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// G6: a stream whose events are not what the documents of the source show is refused, with the
// reason.
func TestG6AStreamThatDocumentsDoNotShowIsRefused(t *testing.T) {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://nowhere.invalid"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(t.Context())) })
	source := Source{Collection: client.Database("shop").Collection("events"), AggregatePath: "aggregateId", VersionPath: "version"}
	right := Stream{
		Name: "shop.events", Position: "8263A1B2C3000000012B042C0100296E5A1004", Collection: "shop.events",
		AggregatePath: "aggregateId", VersionPath: "version", Operations: "insert",
	}
	require.NoError(t, right.check(source, "insert"))
	for reason, change := range map[string]func(*Stream){
		"are counted": func(s *Stream) { s.Position = "0000000000000001-0000000000000007" },
		"is of shop.others, and SOURCE_DATABASE and SOURCE_COLLECTION name shop.events": func(s *Stream) { s.Collection = "shop.others" },
		"has AGGREGATE_ID_PATH=customerId":                                              func(s *Stream) { s.AggregatePath = "customerId" },
		"has VERSION_PATH=revision":                                                     func(s *Stream) { s.VersionPath = "revision" },
		"a snapshot is being published within stream shop.events":                       func(s *Stream) { s.Snapshot = true },
		"has a PIPELINE": func(s *Stream) { s.Pipeline = `[{"$match": {}}]` },
		"publishes insert,update: a document shows its last state": func(s *Stream) { s.Operations = "insert,update" },
	} {
		t.Run(reason, func(t *testing.T) {
			wrong := right
			change(&wrong)
			require.ErrorContains(t, wrong.check(source, "insert"), reason)
		})
	}
}
