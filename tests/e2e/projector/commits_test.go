package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// failCommands makes MongoDB answer the next n of these commands in some way.
func failCommands(w *world.World, n int, command string, answer bson.D) {
	w.Helper()
	require.NoError(w, w.Client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: n}}},
		{Key: "data", Value: append(bson.D{{Key: "failCommands", Value: bson.A{command}}}, answer...)},
	}).Err())
}

// G1, G3: a write that is committed, or is not, and is answered with an error, or not at all, takes
// effect once, also beside another projector.
func TestG1G3AWriteOfUnknownOutcomeTakesEffectOnce(t *testing.T) {
	concern := func(code int) bson.E {
		return bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: code}, {Key: "errmsg", Value: "unknown"}}}
	}
	for name, answer := range map[string]bson.D{
		"the answer is lost":         nil,
		"replication takes too long": {concern(64)},
		"the server stops":           {concern(91)},
		"no majority":                {concern(100)},
		"no answer":                  {{Key: "closeConnection", Value: true}},
		"the transaction is gone":    {{Key: "errorCode", Value: 251}, {Key: "errorLabels", Value: bson.A{"TransientTransactionError"}}},
		"the time for it is over":    {{Key: "errorCode", Value: 50}},
		"a code that is in no table": {{Key: "errorCode", Value: 16732}},
	} {
		for _, command := range []string{"update", "commitTransaction"} {
			eachShapeOf(t, name+", "+command, func(w *world.World, s shape) {
				const events = 20
				if answer == nil {
					w.Mongo.LoseReplies(command, 5)
				} else {
					failCommands(w, 5, command, answer)
				}
				for n := 1; n <= events; n++ {
					publish(w, event("a", n, "T"))
				}
				p, q := w.StartProjector(s.settings), w.StartProjector(s.settings)
				w.Completed(events)
				w.Pass(time.Minute)
				p.MustEnd()
				q.MustEnd()
				requireRight(w, s, "a", events)
				if s.name == "ledger" {
					require.Equal(w, events, total(w))
				}
				require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
			})
		}
	}
}
