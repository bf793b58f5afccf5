package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// holding starts a projector, which applies an event, and opens a transaction under the name of an
// application, which writes the document of totals and is left open.
func holding(w *world.World, app string) *driver.Session {
	w.Helper()
	w.StartProjector(together().settings)
	publishTogether(w, event("a", 1, "T"))
	w.Completed(1)
	return openTransaction(w, app)
}

// openTransaction opens a transaction that has written to the only document of totals.
func openTransaction(w *world.World, app string) *driver.Session {
	w.Helper()
	client, err := driver.Connect(w.MongoOptions().SetAppName(app))
	require.NoError(w, err)
	w.Cleanup(func() { _ = client.Disconnect(w.Context()) })
	session, err := client.StartSession()
	require.NoError(w, err)
	require.NoError(w, session.StartTransaction())
	held, err := client.Database(world.ReadModel).Collection("totals").
		UpdateOne(driver.NewSessionContext(w.Context(), session), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "unseen", Value: true}}}})
	require.NoError(w, err)
	require.EqualValues(w, 1, held.ModifiedCount)
	return session
}

// heldUp publishes two events, which are applied after more than least: otherwise the transaction
// blocked no write, or the check was not delayed.
func heldUp(w *world.World, least, most time.Duration) {
	w.Helper()
	began := time.Now()
	publishTogether(w, event("b", 1, "T"), event("c", 1, "T"))
	w.Completed(3)
	require.Greater(w, time.Since(began), least)
	require.Less(w, time.Since(began), most)
	require.Equal(w, 3, total(w))
}

// G5: MongoDB keeps the transaction of a killed projector, and refuses other writes to its
// documents, for a minute. The running projectors end it once it has been idle for a while.
func TestG5ATransactionThatIsLeftOpenHoldsUpNoOther(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		session := holding(w, "sluice-projector")
		heldUp(w, time.Second, 5*time.Second)
		require.Error(w, session.CommitTransaction(w.Context()), "its owner, if it is still there, gets an error")
	})
}

// G5: the same if an index is built or a validator changed in the meantime: that command waits for
// the transaction, and all writes of the collection wait for the command.
func TestG5ATransactionThatIsLeftOpenBehindACommandHoldsUpNoOther(t *testing.T) {
	for _, command := range []bson.D{
		{{Key: "collMod", Value: "totals"}, {Key: "validator", Value: bson.D{{Key: "none", Value: nil}}}},
		{{Key: "createIndexes", Value: "totals"}, {Key: "indexes", Value: bson.A{bson.D{{Key: "key", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "name", Value: "a"}}}}},
	} {
		subtest(t, command[0].Key, func(w *world.World) {
			holding(w, "sluice-projector")
			answered := make(chan error, 1)
			go func() { answered <- w.Client.Database(world.ReadModel).RunCommand(w.Context(), command).Err() }()
			w.Pass(time.Second)
			heldUp(w, time.Second, 6*time.Second)
			require.NoError(w, <-answered)
		})
	}
}

// G5: the same if MongoDB does not answer the first check in time: it soon gets another.
func TestG5ATransactionThatIsLeftOpenIsEndedThoughACheckFails(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		holding(w, "sluice-projector")
		w.DelayMongo(1, 3*time.Second, "aggregate")
		heldUp(w, 3*time.Second, 15*time.Second)
	})
}

// The transactions of other applications are left alone, however long they take.
func TestATransactionOfAnotherApplicationIsLeftAlone(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		session := holding(w, "shop")
		publishTogether(w, event("b", 1, "T"))
		w.Pass(30 * time.Second)
		require.Equal(w, 1, w.Bus.Stats(world.SubscriptionPath).Completed)
		require.NoError(w, session.CommitTransaction(w.Context()))
		w.Completed(2)
		require.Equal(w, 2, total(w))
	})
}

// G5: a projector whose transaction takes long, with one statement after another, may finish it,
// even if others wait for it.
func TestG5ATransactionThatGoesOnIsLeftAlone(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		session := holding(w, "sluice-projector")
		publishTogether(w, event("b", 1, "T"))
		for n := range 16 {
			w.Pass(500 * time.Millisecond)
			_, err := session.Client().Database(world.ReadModel).Collection("totals").
				UpdateOne(driver.NewSessionContext(w.Context(), session), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "unseen", Value: n}}}})
			require.NoError(w, err)
		}
		require.NoError(w, session.CommitTransaction(w.Context()))
		w.Completed(2)
		require.Equal(w, 2, total(w))
	})
}
