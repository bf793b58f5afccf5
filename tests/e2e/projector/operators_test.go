package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// basket has every kind of write: its items, their price, and no document once it is empty.
type basket struct{}

func (basket) Name() string { return "basket" }

func (basket) Project(e projection.Event) ([]projection.Write, error) {
	update := func(ops ...projection.Op) []projection.Write {
		return []projection.Write{projection.Update("baskets", e.Aggregate, ops...)}
	}
	half, err := bson.ParseDecimal128("0.50")
	if err != nil {
		return nil, err
	}
	switch e.Type {
	case "Put":
		return update(projection.AddToSet("skus", "a", "b"), projection.Inc("items", 2), projection.Add("price", half)), nil
	case "Doubled":
		return update(projection.Mul("items", int64(2)), projection.Mul("price", int32(2)), projection.Max("most", e.Version)), nil
	case "TakenOut":
		return update(projection.Pull("skus", "a"), projection.PullWhere("notes", projection.Lt("", 5)), projection.Inc("items", -2)), nil
	case "Counted":
		return []projection.Write{projection.DeleteIf("baskets", e.Aggregate, projection.Lte("items", 0))}, nil
	case "Wrong":
		return update(projection.Mul("items", "twice")), nil
	}
	return nil, nil
}

// G3: writes that do not fold into one update happen once and in order, in the one transaction of a
// batch.
func TestOperatorsHappenOnceAndInOrder(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(runs(basket{}))
		baskets := w.Client.Database(world.ReadModel).Collection("baskets")
		w.DelayMongo(1, time.Second, "update") // the rest comes as one batch
		publish(w, event("full", 1, "Put"))
		w.Eventually("the first is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked == 1 })
		publish(w, event("full", 2, "Put"), event("full", 3, "Doubled"), event("full", 4, "TakenOut"), event("full", 5, "Counted"))
		publish(w, event("empty", 1, "Put"), event("empty", 2, "TakenOut"), event("empty", 3, "Counted"))
		publish(w, event("again", 1, "Put"), event("again", 2, "TakenOut"), event("again", 3, "Counted"), event("again", 4, "Put"))
		publish(w, event("wrong", 1, "Put"), event("wrong", 2, "Wrong"), event("wrong", 3, "Put"))
		w.Completed(13)
		deadLettered(w, 2)
		p.MustEnd()

		basketOf := func(id string) (d bson.D) {
			_ = baskets.FindOne(w.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&d)
			return d
		}
		decimal := func(text string) bson.Decimal128 {
			d, err := bson.ParseDecimal128(text)
			require.NoError(t, err)
			return d
		}
		put := func(id string) bson.D {
			return bson.D{{Key: "_id", Value: id}, {Key: "items", Value: int64(2)}, {Key: "price", Value: decimal("0.50")}, {Key: "skus", Value: bson.A{"a", "b"}}}
		}
		require.Equal(t, bson.D{
			{Key: "_id", Value: "full"},
			{Key: "items", Value: int64(6)},
			{Key: "price", Value: decimal("2.00")},
			{Key: "skus", Value: bson.A{"b"}},
			{Key: "most", Value: int64(3)},
		}, basketOf("full"))
		require.Nil(t, basketOf("empty"))
		require.Equal(t, put("again"), basketOf("again"))
		require.Equal(t, put("wrong"), basketOf("wrong"))
		require.Equal(t, []string{"wrong/2 ProjectionInvalid", "wrong/3 AggregateParked"}, deadLetters(w))
		require.Contains(t, p.Log.Text(), "$mul of items needs a number (int32, int64, float64 or bson.Decimal128), not a string")
	})
}
