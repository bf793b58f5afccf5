package projector_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// price is a type of a projection's own, whose code runs when it is encoded as BSON.
type price struct{ cents *int64 }

func (p price) MarshalBSONValue() (byte, []byte, error) {
	kind, value, err := bson.MarshalValue(*p.cents)
	return byte(kind), value, err
}

// unwritable returns, for an event of a type below, a write that cannot be executed.
type unwritable struct{}

func (unwritable) Name() string { return "unwritable" }

func (unwritable) Project(e projection.Event) ([]projection.Write, error) {
	w := projection.Update("unwritable", e.Aggregate, projection.Inc("events", 1))
	switch e.Type {
	case "panic":
		w = projection.Update("unwritable", e.Aggregate, projection.Set("price", price{}))
	case "panic in an id":
		w = projection.Delete("unwritable", price{})
	case "panic in a list":
		w = projection.Update("unwritable", e.Aggregate, projection.AddToSet("prices", price{}))
	case "channel":
		w = projection.Update("unwritable", e.Aggregate, projection.Set("c", make(chan int)))
	case "name":
		w = projection.Update("unwritable", e.Aggregate, projection.Set("a\x00b", 1))
	case "name in a value":
		w = projection.Update("unwritable", e.Aggregate, projection.Set("a", bson.D{{Key: "a\x00b", Value: 1}}))
	case "missing value":
		w = projection.Update("unwritable", e.Aggregate, projection.Set("a", e.Document().Lookup("none")))
	case "missing id":
		w = projection.Update("unwritable", e.Document().Lookup("none"), projection.Set("a", 1))
	case "no document":
		w = projection.Replace("unwritable", e.Aggregate, nil)
	case "broken document":
		w = projection.Replace("unwritable", e.Aggregate, bson.Raw{9, 0, 0, 0, 1, 'a', 0, 1, 0})
	case "broken value":
		w = projection.Update("unwritable", e.Aggregate, projection.Set("a", bson.RawValue{Type: bson.TypeString, Value: []byte{200, 0, 0, 0, 'x'}}))
	case "pointer":
		w = &projection.UpdateOne{Collection: "unwritable", ID: "healthy", Upsert: true, Ops: []projection.Op{projection.Inc("events", 1)}}
	}
	return []projection.Write{w}, nil
}

// G5: a write that cannot be sent is the event's fault: it parks its aggregate at once, and
// neighbours of its session do not wait.
func TestG5AWriteThatCannotBeWrittenHoldsUpNoNeighbour(t *testing.T) {
	for _, bad := range []string{
		"panic", "panic in an id", "panic in a list", "channel", "name", "name in a value", "missing value", "missing id", "no document",
		"broken document", "broken value", "pointer",
	} {
		subtest(t, bad, func(w *world.World) {
			w.StartProjector(runs(unwritable{}))
			w.DelayMongo(1, time.Second, "update") // the rest comes as one batch
			publishTogether(w, event("first", 1, "T"))
			w.Eventually("the first is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
			publishTogether(w, event("bad", 1, bad))
			for n := 1; n <= 5; n++ {
				publishTogether(w, event("healthy", n, "T"))
			}
			began := time.Now()
			decided(w, 7)
			require.Less(w, time.Since(began), 5*time.Second)
			reason := "ProjectionInvalid"
			if strings.HasPrefix(bad, "panic") {
				reason = "ProjectionFailed"
			}
			require.Equal(w, []string{"bad/1 " + reason}, deadLetters(w))
			require.EqualValues(w, 5, read(w, "unwritable", "healthy").Lookup("events").AsInt64())
		})
	}
}
