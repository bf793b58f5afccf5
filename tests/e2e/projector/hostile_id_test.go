package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// eventWithData returns an event that carries data and has no version.
func eventWithData(aggregate string, n int, eventType string, data bson.D) envelope.Change {
	c := event(aggregate, n, eventType)
	id := aggregate + "/" + c.Position
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "fullDocument", Value: bson.D{
			{Key: "_id", Value: id}, {Key: "aggregateId", Value: aggregate}, {Key: "type", Value: eventType}, {Key: "data", Value: data},
		}},
	})
	if err != nil {
		panic(err)
	}
	c.Body, c.Version = body, 0
	return c
}

// perCustomer counts orders by the customer's id as the event holds it, of whatever type that is.
type perCustomer struct{}

func (perCustomer) Name() string { return "per_customer" }

func (perCustomer) Project(e projection.Event) ([]projection.Write, error) {
	id := e.Document().Lookup("data", "customerId")
	switch e.Type {
	case "Forgotten":
		return []projection.Write{projection.Delete("customers", id)}, nil
	case "Empty":
		return []projection.Write{projection.DeleteIf("customers", id, projection.Gte("orders", 1))}, nil
	case "Replaced":
		return []projection.Write{projection.Replace("customers", id, e.Document().Lookup("data").Document())}, nil
	case "Changed":
		return []projection.Write{projection.UpdateExisting("customers", id, projection.Inc("orders", 1))}, nil
	}
	return []projection.Write{projection.Update("customers", id, projection.Inc("orders", 1))}, nil
}

// customers returns all documents of perCustomer, as Extended JSON.
func customers(w *world.World) (all []string) {
	w.Helper()
	cursor, err := w.Client.Database(world.ReadModel).Collection("customers").Find(w.Context(), bson.D{})
	require.NoError(w, err)
	for cursor.Next(w.Context()) {
		text, err := bson.MarshalExtJSON(cursor.Current, false, false)
		require.NoError(w, err)
		all = append(all, string(text))
	}
	require.NoError(w, cursor.Err())
	return all
}

// decided waits until n messages are completed or dead-lettered.
func decided(w *world.World, n int) {
	w.Helper()
	w.Eventually("the messages are decided", func() bool {
		s := w.Bus.Stats(world.SubscriptionPath)
		return s.Completed+s.DeadLettered == n
	})
}

// G2, G5: an id that comes from an event is a value. One that has the form of a query selects no
// other document, whatever the write, and parks only the aggregate of its event.
func TestG2G5AnIDFromAnEventIsNoQuery(t *testing.T) {
	for name, id := range map[string]any{
		"operator":              bson.D{{Key: "$gt", Value: ""}},
		"operator below a name": bson.D{{Key: "a", Value: bson.D{{Key: "$gt", Value: ""}}}},
		"regular expression":    bson.Regex{Pattern: "^a"},
		"array":                 bson.A{"ann"},
		"undefined":             bson.Undefined{},
	} {
		for _, eventType := range []string{"Placed", "Changed", "Forgotten", "Empty", "Replaced"} {
			subtest(t, name+" "+eventType, func(w *world.World) {
				w.StartProjector(runs(perCustomer{}))
				publish(w, eventWithData("o1", 1, "Placed", bson.D{{Key: "customerId", Value: "ann"}}))
				w.Completed(1)
				publish(w, eventWithData("o2", 1, eventType, bson.D{{Key: "customerId", Value: id}}))
				decided(w, 2)
				require.Equal(w, []string{`{"_id":"ann","orders":1}`}, customers(w))
				require.Equal(w, []string{"o2/0 ProjectionInvalid"}, deadLetters(w))
			})
		}
	}
}

// G2, G5: the same holds for the key by which a mirror keeps its copies.
func TestG2G5AMirrorsKeyIsNoQuery(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection, c.MirrorKey = "mirror", "sku" })
		publish(w, documentChange("o1", 1, envelope.Insert, full("o1", bson.E{Key: "sku", Value: "A1"})))
		w.Completed(1)
		copied := mirrored(w, "A1")
		require.NotEmpty(w, copied)
		// The stream deletes a document that was inserted before the stream began, so it has no
		// copy.
		publish(w, documentChange("o9", 2, envelope.Delete, bson.E{Key: "fullDocumentBeforeChange", Value: bson.D{
			{Key: "_id", Value: "o9"}, {Key: "sku", Value: bson.D{{Key: "$gt", Value: ""}}},
		}}))
		decided(w, 2)
		require.Equal(w, copied, mirrored(w, "A1"))
	})
}

// G1, G2: a value of any type that an _id can have is one, and its document is found again by it.
func TestG1G2IDsOfEveryType(t *testing.T) {
	ids := []any{
		"text", "", "$text", "a.b", 7, int64(1) << 60, 1.5, true, nil, bson.NewObjectID(), bson.DateTime(1),
		bson.Timestamp{T: 1, I: 2},
		bson.Timestamp{},
		bson.MinKey{},
		bson.MaxKey{},
		bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		bson.Binary{Data: []byte{1}},
		bson.Symbol("s"), bson.JavaScript("f()"),
		bson.CodeWithScope{Code: "f()", Scope: bson.D{}},
		bson.DBPointer{DB: "d.c"},
		bson.D{},
		bson.D{{Key: "a", Value: 1}, {Key: "", Value: bson.A{1}}},
	}
	for _, eventType := range []string{"Forgotten", "Empty", "Replaced", "Changed"} {
		subtest(t, eventType, func(w *world.World) {
			w.StartProjector(runs(perCustomer{}))
			for i, id := range ids {
				publish(w, eventWithData("o", 2*i+1, "Placed", bson.D{{Key: "customerId", Value: id}}))
			}
			w.Completed(len(ids))
			require.Len(w, customers(w), len(ids))
			for i, id := range ids {
				publish(w, eventWithData("o", 2*len(ids)+i+1, eventType, bson.D{{Key: "customerId", Value: id}}))
			}
			decided(w, 2*len(ids))
			require.Empty(w, deadLetters(w))
			after := customers(w)
			switch eventType {
			case "Forgotten", "Empty":
				require.Empty(w, after)
			case "Replaced":
				require.Len(w, after, len(ids))
				for _, document := range after {
					require.Contains(w, document, `"customerId"`)
				}
			default:
				require.Len(w, after, len(ids))
				for _, document := range after {
					require.Contains(w, document, `"orders":2`)
				}
			}
		})
	}
}
