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
				w.Eventually("the insert is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 1 })
				busy, err := w.BusClient.AcceptNextSessionForSubscription(w.Context(), world.Topic, world.Subscription, nil)
				require.NoError(t, err)
				_, err = w.Events.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: ids[0]}})
				require.NoError(t, err)
				w.InsertDocument(bson.D{{Key: "_id", Value: ids[1]}, {Key: "n", Value: 2}})
				w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 3 })

				p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" })
				w.Pass(5 * time.Second)
				require.NoError(t, busy.Close(w.Context()))
				w.Completed(3)
				_, err = p.End()
				require.NoError(t, err)
				copied, err := w.Client.Database(world.ReadModel).Collection("mirror").FindOne(w.Context(), bson.D{}).Raw()
				require.NoError(t, err, "the document is missing")
				require.EqualValues(t, 2, copied.Lookup("n").AsInt64())
			})
		})
	}
}
