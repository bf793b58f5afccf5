package projector_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// documentChange returns a change of the document whose _id is its aggregate.
func documentChange(id string, n int, operation envelope.Operation, fields ...bson.E) envelope.Change {
	body, err := bson.Marshal(append(bson.D{
		{Key: "operationType", Value: string(operation)}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
	}, fields...))
	if err != nil {
		panic(err)
	}
	position := fmt.Sprintf("82%022X", n)
	return envelope.Change{
		Stream: "shop.orders", Token: position + id, Position: position, Epoch: 1,
		Aggregate: id, Operation: operation, Type: string(operation), Body: body,
	}
}

func full(id string, fields ...bson.E) bson.E {
	return bson.E{Key: "fullDocument", Value: append(bson.D{{Key: "_id", Value: id}}, fields...)}
}

// mirrored returns the mirror's document as Extended JSON; empty without one.
func mirrored(w *world.World, id string) string {
	w.Helper()
	return inJSON(w, "mirror", id)
}

// Documents are inserted, changed and deleted, once each and in order, although the broker forgets
// and repeats.
func TestProjectorMirrorsDocuments(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" })
		insert := documentChange("o1", 1, envelope.Insert, full("o1", bson.E{Key: "state", Value: "new"}, bson.E{Key: "lines", Value: bson.A{1, 2, 3}}))
		update := documentChange("o1", 2, envelope.Update, bson.E{Key: "updateDescription", Value: bson.D{
			{Key: "updatedFields", Value: bson.D{{Key: "state", Value: "paid"}, {Key: "lines.0", Value: 9}}},
			{Key: "truncatedArrays", Value: bson.A{bson.D{{Key: "field", Value: "lines"}, {Key: "newSize", Value: 2}}}},
		}})
		publish(w, insert, update)
		publish(w, documentChange("o2", 3, envelope.Insert, full("o2")))
		w.Completed(3)
		require.Equal(w, `{"_id":"o1","state":"paid","lines":[9,2]}`, mirrored(w, "o1"))
		require.Equal(w, `{"_id":"o2"}`, mirrored(w, "o2"))

		publish(w, documentChange("o1", 4, envelope.Replace, full("o1", bson.E{Key: "state", Value: "sent"})))
		publish(w, documentChange("o2", 5, envelope.Delete))
		w.Completed(5)
		require.Equal(w, `{"_id":"o1","state":"sent"}`, mirrored(w, "o1"))
		require.Empty(w, mirrored(w, "o2"))

		// A deleted document does not reappear when its insert is published again after the
		// broker's window.
		w.Pass(time.Minute)
		publish(w, documentChange("o2", 3, envelope.Insert, full("o2")))
		publish(w, insert, update)
		w.Completed(8)
		require.Equal(w, `{"_id":"o1","state":"sent"}`, mirrored(w, "o1"))
		require.Empty(w, mirrored(w, "o2"))

		counted := p.MustEnd()
		require.Equal(w, 5, counted.Applied)
		require.Equal(w, 3, counted.Duplicates)
		require.Equal(w, fmt.Sprintf("82%022X", 4), guard(w, "mirror_positions", "o1").Lookup("position").StringValue())
	})
}

// G2: the fields of a copy are in the order in which the changes made them, also if several changes
// are applied at once: in one update MongoDB would sort them.
func TestG2AMirrorsFieldsComeInTheirOrder(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" })
		update := func(n int, description ...bson.E) envelope.Change {
			return documentChange("o1", n, envelope.Update, bson.E{Key: "updateDescription", Value: bson.D(description)})
		}
		set := func(field string, value any) bson.E {
			return bson.E{Key: "updatedFields", Value: bson.D{{Key: field, Value: value}}}
		}
		w.DelayMongo(1, time.Second, "update") // the rest comes as one batch
		publish(w, documentChange("o1", 1, envelope.Insert, full("o1", bson.E{Key: "n", Value: 1}, bson.E{Key: "last", Value: 1})))
		w.Eventually("the first is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked == 1 })
		publish(w,
			update(2, set("z", 1)), update(3, set("a", 1)), update(4, set("z", 2)), update(5, set("in.z", 1)), update(6, set("in.a", 1)),
			update(7, bson.E{Key: "removedFields", Value: bson.A{"n"}}), update(8, set("n", 3)))
		w.Completed(8)
		require.Equal(w, `{"_id":"o1","last":1,"z":2,"a":1,"in":{"z":1,"a":1},"n":3}`, mirrored(w, "o1"))
		counted := p.MustEnd()
		require.Equal(w, 8, counted.Applied)
	})
}

// A document that was created without a guard is adopted.
func TestProjectorTakesOverADocumentWithoutAGuard(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		_, err := w.Client.Database(world.ReadModel).Collection("timeline").InsertOne(w.Context(), bson.D{{Key: "_id", Value: "a"}, {Key: "note", Value: "mine"}})
		require.NoError(w, err)
		p := w.StartProjector(nil)
		publish(w, event("a", 1, "T"), event("a", 2, "T"))
		w.Completed(2)
		counted := p.MustEnd()
		require.Equal(w, 2, counted.Applied)
		require.Equal(w, int64(2), w.TimelineOf("a").Events)
	})
}

// G2: a copy has every byte of its document, even if a server or the driver would refuse or change
// a replacement by it: names that begin with a dollar, and empty timestamps.
func TestG2ACopyKeepsWhatAReplacementWouldChange(t *testing.T) {
	o := settings(0)
	o.Since = "5.0" // those before do not store such names
	for collection, settings := range map[string]func(*projector.Config, *projector.Options){
		"mirror": func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" },
		"latest": runs(latest),
	} {
		t.Run(collection, func(t *testing.T) {
			world.InVirtualTime(t, o, func(w *world.World) {
				p := w.StartProjector(settings)
				for n := range 3 {
					publish(w, documentChange("o1", n+1, envelope.Insert, full("o1",
						bson.E{Key: "at", Value: bson.Timestamp{}}, bson.E{Key: "$price", Value: n}, bson.E{Key: "deep", Value: bson.D{
							{Key: "$gt", Value: bson.Timestamp{}}, {Key: "a.b", Value: "$n"},
						}})))
				}
				decided(w, 3)
				require.Empty(w, deadLetters(w))
				require.Contains(w, inJSON(w, collection, "o1"),
					`{"_id":"o1","at":{"$timestamp":{"t":0,"i":0}},"$price":2,"deep":{"$gt":{"$timestamp":{"t":0,"i":0}},"a.b":"$n"}`)
				p.MustEnd()
			})
		})
	}
}
