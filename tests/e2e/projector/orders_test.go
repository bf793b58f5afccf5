package projector_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/books"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// inserted returns the change that inserts an event of the workload as the n-th of the stream.
func inserted(w *world.World, e workload.Event, n int) (envelope.Change, bson.Raw) {
	w.Helper()
	document, err := e.Document()
	require.NoError(w, err)
	encoded, err := bson.Marshal(document)
	require.NoError(w, err)
	raw := bson.Raw(encoded)
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: raw.Lookup("_id")}}}, {Key: "fullDocument", Value: raw},
	})
	require.NoError(w, err)
	position := fmt.Sprintf("82%022X", n)
	return envelope.Change{
		Stream: "shop.events", Token: position, Position: position, Epoch: 1,
		Aggregate: e.AggregateID, Operation: envelope.Insert, Type: e.Type, Version: e.Version, Body: body,
	}, raw
}

// G3: three projectors apply orders of one customer at once, in transactions that conflict in the
// customer's document: each event's share of the totals is counted once.
func TestG3TransactionsThatMeetInOneDocumentAddUp(t *testing.T) {
	inRealTime(t, time.Millisecond, func(w *world.World) {
		const count = 400
		var kept books.Books
		n := 0
		var changes []envelope.Change
		for e := range workload.Orders(5) {
			if n++; n > count {
				break
			}
			e.Data = fmt.Appendf(nil, `{"customerId": "everybody", "totalCents": %d, "items": 1, "currency": "EUR"}`, 100*e.Version)
			change, raw := inserted(w, e, n)
			var entry books.Entry
			require.NoError(w, bson.Unmarshal(raw, &entry))
			require.NoError(w, kept.Add(entry))
			changes = append(changes, change)
		}
		var conflicts atomic.Int64
		monitor := &mongoevent.CommandMonitor{Failed: func(_ context.Context, e *mongoevent.CommandFailedEvent) {
			if refused, ok := errors.AsType[driver.Error](e.Failure); ok && refused.Code == 112 { // WriteConflict
				conflicts.Add(1)
			}
		}}
		for range 3 {
			w.StartProjector(func(c *projector.Config, o *projector.Options) {
				dial := o.Mongo
				c.Projection, o.Mongo = "orders", func(m *options.ClientOptions) { dial(m); m.SetMonitor(monitor) }
			})
		}
		// Long transactions conflict for certain.
		w.DelayMongo(30, 20*time.Millisecond, "commitTransaction")
		for ; len(changes) > 0; changes = changes[40:] {
			publish(w, changes[:40]...)
		}
		w.Completed(count)
		readModels := w.Client.Database(world.ReadModel)
		compared, applied, err := kept.Compare(w.Context(), readModels.Collection(projection.OrdersCollection), readModels.Collection(projection.CustomersCollection))
		require.NoError(w, err)
		require.Empty(w, compared.Differences)
		require.EqualValues(w, count, applied)
		total := 0
		for _, p := range w.Projectors {
			counted := endCleanly(w, p)
			total += counted.Applied
			require.Zero(w, counted.DeadLettered)
		}
		require.Equal(w, count, total)
		require.NotZero(w, conflicts.Load(), "no two transactions met: the test shows nothing")
	})
}
