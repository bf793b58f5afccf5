package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// G5: where the first event of an aggregate can never be applied, and the database's own rules refuse even the stub that is
// to hold the record of it, nothing is dead-lettered without one. The log says what to change; then it goes on by itself.
func TestG5AStubThatTheDatabaseRefusesIsToldAndWaitedFor(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		database := w.client.Database(readModel)
		exists := func(is bool) bson.D { return bson.D{{Key: "$exists", Value: is}} }
		sane := bson.D{{Key: "events", Value: exists(true)}, {Key: "types.Bad", Value: exists(false)}}
		require.NoError(w, database.CreateCollection(w.Context(), "timeline", options.CreateCollection().SetValidator(sane)))
		p := w.start(nil)
		w.publish(event("a", 1, "Bad"), event("a", 2, "T"))
		w.publish(event("b", 1, "T"))
		w.completed(1)
		w.pass(lockDuration * 3)
		require.Zero(w, w.bus.Stats(subPath).DeadLettered)
		require.Zero(w, w.bus.Stats(subPath).Redelivered)
		require.Equal(w, 1, int(w.timeline("b").Events))
		require.Contains(w, p.log.text(), "_sluice.empty")

		require.NoError(w, database.RunCommand(w.Context(), bson.D{
			{Key: "collMod", Value: "timeline"},
			{Key: "validator", Value: bson.D{{Key: "$or", Value: bson.A{sane, bson.D{{Key: "_sluice.empty", Value: true}}}}}},
		}).Err())
		w.deadLettered(2)
		_, err := p.end()
		require.NoError(w, err)
		require.Equal(w, []string{"a/1 WriteRefused", "a/2 AggregateParked"}, w.deadLetters())
	})
}
