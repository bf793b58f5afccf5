package producer_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G6: versions that are texts, in which a gap cannot be seen, and ids of two types that are one
// aggregate are reported: once in the log, and by the doctor, with the remedy.
func TestG6MisleadingTypesAreReported(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		event := func(aggregate, version any) {
			w.InsertDocument(bson.D{{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: version}, {Key: "type", Value: "T"}})
		}
		a := startLeader(w, "a", nil)
		event("order-1", 1)
		event(17, 1)
		checkpointed(w, 2)
		require.Regexp(t, `ok +types +2 documents examined: versions are integers or absent`, operate(w, "doctor").Out)
		require.NotContains(t, a.Log.Text(), "logged once")

		for range 3 {
			event("order-1", "2")
			event("17", 2)
		}
		checkpointed(w, 8)
		log := a.Log.Text()
		require.Equal(t, 1, strings.Count(log, "the version of an event is not an integer"))
		require.Contains(t, log, `"reason":"\"2\" (string)"`)
		require.Contains(t, log, "VERSION_PATH=) if there are no versions")
		require.Equal(t, 1, strings.Count(log, "aggregate ids of two types may have the same text"))
		require.Contains(t, log, `\"17\" (string) here, {\"$numberInt\":\"17\"} (32-bit integer) before`)

		operate(w, "doctor").reports(1,
			`PROBLEM +types +a version is "2" \(string\), so a missing event .* \(8 documents examined\)\. To fix it: store integers at VERSION_PATH \(version\)`,
			`PROBLEM +types +aggregate ids of two types may have the same text, .*"17" \(string\).* To fix it: store one type at AGGREGATE_ID_PATH \(aggregateId\)`)
		a.End()
	})
}
