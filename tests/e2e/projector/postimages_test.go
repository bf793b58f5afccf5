package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// balance adds what each update changed, by the document before it and the one after it.
type balance struct{}

func (balance) Name() string          { return "balance" }
func (balance) Collection() string    { return "balance" }
func (balance) NeedsPostImages() bool { return true }

func (balance) Project(e projection.Event) ([]projection.Write, error) {
	amount := e.Document().Lookup("amount").AsInt64()
	if before := e.Before(); before != nil {
		amount -= before.Lookup("amount").AsInt64()
	}
	return []projection.Write{projection.Update("balance", e.Aggregate, projection.Inc("amount", amount))}, nil
}

// G3, G6: a projection that computes with the documents before and after a change does not count a
// document that was looked up later: the projector ends before, and names the remedy. With
// post-images the result is right.
func TestG3G6AProjectionThatNeedsPostImagesRefusesLookedUpDocuments(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		amount := func(n int) bson.E { return bson.E{Key: "amount", Value: n} }
		update := func(n, before, after int) envelope.Change {
			return documentChange("a", n, envelope.Update, bson.E{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "orders"}}},
				full("a", amount(after)), bson.E{Key: "fullDocumentBeforeChange", Value: bson.D{amount(before)}})
		}
		image := update(2, 10, 30)
		image.PostImage = true
		p := w.StartProjector(runs(balance{}))
		publish(w, documentChange("a", 1, envelope.Insert, full("a", amount(10))), image)
		w.Completed(2)
		publish(w, update(3, 30, 50)) // 50 is the later value, after an update from 40
		err := refusal(w, p)
		require.ErrorContains(w, err, `db.getSiblingDB("shop").runCommand({collMod: "orders", changeStreamPreAndPostImages: {enabled: true}})`)
		require.ErrorContains(w, err, "FULL_DOCUMENT=required")
		require.EqualValues(w, 30, read(w, "balance", "a").Lookup("amount").AsInt64())
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
	})
}
