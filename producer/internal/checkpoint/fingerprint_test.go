package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiffListsOnlyWhatMovesOrRenumbersChanges(t *testing.T) {
	was := MappingFingerprint{
		AggregateIDPath: "a", VersionPath: "v", Pipeline: `[{"$match":{"x":1}},{"$unset":"y"}]`, Operations: "insert,update", Updates: "image",
		Collection: "shop.events", Entity: "changes", Cluster: "replica set 1",
	}
	for name, test := range map[string]struct {
		change func(*MappingFingerprint)
		want   string
		drain  bool
	}{
		"nothing":                        {func(*MappingFingerprint) {}, "", false},
		"an earlier version":             {func(r *MappingFingerprint) { *r = MappingFingerprint{} }, "", false},
		"another filter":                 {func(r *MappingFingerprint) { r.Pipeline = `[{"$unset":"y"}]` }, "", false},
		"more operations":                {func(r *MappingFingerprint) { r.Operations, r.Deletes = "insert,update,delete", "image" }, "", false},
		"fewer operations":               {func(r *MappingFingerprint) { r.Operations, r.Updates = "insert", "" }, "", false},
		"another path":                   {func(r *MappingFingerprint) { r.AggregateIDPath = "b" }, `AGGREGATE_ID_PATH was "a" and is now "b"`, true},
		"another version":                {func(r *MappingFingerprint) { r.VersionPath = "w" }, "VERSION_PATH", false},
		"another form of the document":   {func(r *MappingFingerprint) { r.Pipeline = `[{"$unset":"z"}]` }, "PIPELINE", true},
		"numbers by their value":         {func(r *MappingFingerprint) { r.Numbers = NumbersByValue }, "the text of numbers in ids", true},
		"updates by their key":           {func(r *MappingFingerprint) { r.Updates = "documentKey" }, "ON_UNKNOWN_AGGREGATE", true},
		"another collection":             {func(r *MappingFingerprint) { r.Collection = "shop.orders" }, "MONGODB_COLLECTION", true},
		"another entity":                 {func(r *MappingFingerprint) { r.Entity = "orders" }, "SERVICE_BUS_TOPIC", true},
		"another cluster":                {func(r *MappingFingerprint) { r.Cluster = "replica set 2" }, "MONGODB_URI", true},
		"a set that became a shard":      {func(r *MappingFingerprint) { r.Cluster = "cluster 2" }, "", false},
		"a cluster that cannot be asked": {func(r *MappingFingerprint) { r.Cluster = "" }, "", false},
		"a record that names neither":    {func(r *MappingFingerprint) { r.Collection, r.Entity = "", "" }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			to := was
			test.change(&to)
			changed, drain := was.Diff(to)
			require.Equal(t, test.drain, drain)
			if test.want == "" {
				require.Empty(t, changed)
				return
			}
			require.Len(t, changed, 1)
			require.Contains(t, changed[0], test.want)
		})
	}
}
