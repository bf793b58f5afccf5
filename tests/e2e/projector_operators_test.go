package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
)

// basket has every kind of write of its own: what is in it, what it costs, and nothing once it is empty.
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

// G3: what does not fold into one update happens once and in order, in the one transaction of a batch.
func TestOperatorsHappenOnceAndInOrder(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		registry, err := projection.NewRegistry(basket{})
		require.NoError(t, err)
		p := w.start(func(c *projector.Config, o *projector.Options) { c.Projection, o.Projections = "", registry })
		baskets := w.client.Database(readModel).Collection("baskets")
		w.block("update", 1, time.Second) // the rest comes as one batch
		w.publish(event("full", 1, "Put"))
		w.eventually("the first is in hand", func() bool { return w.bus.Stats(subPath).Locked == 1 })
		w.publish(event("full", 2, "Put"), event("full", 3, "Doubled"), event("full", 4, "TakenOut"), event("full", 5, "Counted"))
		w.publish(event("empty", 1, "Put"), event("empty", 2, "TakenOut"), event("empty", 3, "Counted"))
		w.publish(event("again", 1, "Put"), event("again", 2, "TakenOut"), event("again", 3, "Counted"), event("again", 4, "Put"))
		w.publish(event("wrong", 1, "Put"), event("wrong", 2, "Wrong"), event("wrong", 3, "Put"))
		w.completed(13)
		w.deadLettered(2)
		_, err = p.end()
		require.NoError(t, err)

		read := func(id string) (d bson.D) {
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
		}, read("full"))
		require.Nil(t, read("empty"))
		require.Equal(t, put("again"), read("again"))
		require.Equal(t, put("wrong"), read("wrong"))
		require.Equal(t, []string{"wrong/2 ProjectionInvalid", "wrong/3 AggregateParked"}, w.deadLetters())
		require.Contains(t, p.log.text(), "$mul of items needs a number (int32, int64, float64 or bson.Decimal128), not a string")
	})
}
