package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyWhatMovesOrNumbersChangesIsAChangeOfReading(t *testing.T) {
	was := Reading{
		AggregateIDPath: "a", VersionPath: "v", Pipeline: `[{"$match":{"x":1}},{"$unset":"y"}]`, Operations: "insert,update", Updates: "image",
		Collection: "shop.events", Entity: "changes", Cluster: "replica set 1",
	}
	for name, test := range map[string]struct {
		change func(*Reading)
		says   string
		drain  bool
	}{
		"nothing":                        {func(*Reading) {}, "", false},
		"an earlier version":             {func(r *Reading) { *r = Reading{} }, "", false},
		"another filter":                 {func(r *Reading) { r.Pipeline = `[{"$unset":"y"}]` }, "", false},
		"more operations":                {func(r *Reading) { r.Operations, r.Deletes = "insert,update,delete", "image" }, "", false},
		"fewer operations":               {func(r *Reading) { r.Operations, r.Updates = "insert", "" }, "", false},
		"another path":                   {func(r *Reading) { r.AggregateIDPath = "b" }, `AGGREGATE_ID_PATH was "a" and is "b" now`, true},
		"another version":                {func(r *Reading) { r.VersionPath = "w" }, "VERSION_PATH", false},
		"another form of the document":   {func(r *Reading) { r.Pipeline = `[{"$unset":"z"}]` }, "PIPELINE", true},
		"numbers by their value":         {func(r *Reading) { r.Numbers = NumbersByValue }, "the text of numbers in ids", true},
		"updates by their key":           {func(r *Reading) { r.Updates = "documentKey" }, "ON_UNKNOWN_AGGREGATE", true},
		"another collection":             {func(r *Reading) { r.Collection = "shop.orders" }, "MONGODB_COLLECTION", true},
		"another entity":                 {func(r *Reading) { r.Entity = "orders" }, "SERVICE_BUS_TOPIC", true},
		"another cluster":                {func(r *Reading) { r.Cluster = "replica set 2" }, "MONGODB_URI", true},
		"a set that became a shard":      {func(r *Reading) { r.Cluster = "cluster 2" }, "", false},
		"a cluster that cannot be asked": {func(r *Reading) { r.Cluster = "" }, "", false},
		"a record that names neither":    {func(r *Reading) { r.Collection, r.Entity = "", "" }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			to := was
			test.change(&to)
			changed, drain := was.Changed(to)
			require.Equal(t, test.drain, drain)
			if test.says == "" {
				require.Empty(t, changed)
				return
			}
			require.Len(t, changed, 1)
			require.Contains(t, changed[0], test.says)
		})
	}
}
