package pipeline_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func decimal(text string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(text)
	if err != nil {
		panic(err)
	}
	return d
}

// lateMirror makes a mirror copy documents whose changes wait in one session, which is served only
// after all of them were published.
func lateMirror(w *world.World, changes int, commit func()) {
	w.Helper()
	w.Eventually("the insert is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 1 })
	busy, err := w.BusClient.AcceptNextSessionForSubscription(w.Context(), world.Topic, world.Subscription, nil)
	require.NoError(w, err)
	commit()
	w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == changes })
	p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" })
	w.Pass(5 * time.Second)
	require.NoError(w, busy.Close(w.Context()))
	w.Completed(changes)
	p.MustEnd()
}

// G2: a document that is inserted and deleted does not reappear in its mirror because its session
// is served late: its delete waits in the same session.
func TestG2ADeletedDocumentStaysDeleted(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "6.0"}, func(w *world.World) {
		w.KeepImages()
		a := w.StartProducer("a", world.AllOperations)
		w.Leads("a")
		w.InsertDocument(bson.D{{Key: "_id", Value: "D1"}, {Key: "aggregateId", Value: "A"}})
		lateMirror(w, 2, func() {
			_, err := w.Events.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: "D1"}})
			require.NoError(t, err)
		})
		a.End()
		require.Zero(t, count(w, "mirror"))
	})
}

// G1, G2: a document that is deleted and inserted again under an equal _id of another type is one
// aggregate: its delete does not come late and remove the new document.
func TestG1G2AnEqualIDOfAnotherTypeIsTheSameDocument(t *testing.T) {
	for _, ids := range [][2]any{
		{int32(7), decimal("7")},
		{decimal("2.0"), decimal("2.00")},
		{int64(1<<53 + 2), float64(1<<53 + 2)},
		{math.Copysign(0, -1), decimal("-0")},
		{math.NaN(), decimal("NaN")},
		{1.5, decimal("1.5")},
		{bson.D{{Key: "t", Value: int32(1)}}, bson.D{{Key: "t", Value: 1.0}}},
		{bson.D{{Key: "t", Value: bson.A{int64(1)}}}, bson.D{{Key: "t", Value: bson.A{decimal("1.0")}}}},
	} {
		t.Run(fmt.Sprintf("%T %v and %T %v", ids[0], ids[0], ids[1], ids[1]), func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				w.StartProducer("a", func(c *producer.Config, o *producer.Options) {
					world.AllOperations(c, o)
					c.AggregateIDPath = "_id"
				})
				w.Leads("a")
				w.InsertDocument(bson.D{{Key: "_id", Value: ids[0]}, {Key: "n", Value: 1}})
				lateMirror(w, 3, func() {
					_, err := w.Events.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: ids[0]}})
					require.NoError(t, err)
					w.InsertDocument(bson.D{{Key: "_id", Value: ids[1]}, {Key: "n", Value: 2}})
				})
				copied, err := w.Client.Database(world.ReadModel).Collection("mirror").FindOne(w.Context(), bson.D{}).Raw()
				require.NoError(t, err, "the document is missing")
				require.EqualValues(t, 2, copied.Lookup("n").AsInt64())
			})
		})
	}
}
