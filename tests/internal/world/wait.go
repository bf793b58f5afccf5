package world

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// Eventually waits for a condition that no event announces.
func (w *World) Eventually(what string, ok func() bool) {
	w.Helper()
	deadline := time.After(w.patience)
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			w.Fatalf("not in %v: %s; topic: %+v; subscription: %+v", w.patience, what, w.Bus.Stats(Topic), w.Bus.Stats(SubscriptionPath))
		}
	}
}

// Pass lets time pass between two actions, or to show that time alone does no harm.
func (w *World) Pass(d time.Duration) {
	w.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.Context().Done():
		w.Fatal("the test ended")
	}
}

// Leads waits until an instance leads and has written its first checkpoint with a token.
func (w *World) Leads(instance string) {
	w.Helper()
	w.Eventually(instance+" leads", func() bool {
		r := w.Checkpoint()
		return r.Leader == instance && r.Token != nil
	})
}

// Completed waits until n messages of the subscription are completed.
func (w *World) Completed(n int) {
	w.Helper()
	w.Eventually(fmt.Sprintf("%d messages completed", n), func() bool { return w.Bus.Stats(SubscriptionPath).Completed >= n })
}

// DropMongo closes every connection to MongoDB, and waits until the test's own client has
// recovered: the driver clears its pool when the monitor notices, and a write that is in progress
// then fails for good.
func (w *World) DropMongo() {
	w.Helper()
	w.Mongo.DropConnections()
	virtualtime.Wait()
	w.Eventually("the test's own client is connected again", func() bool { return w.Events.FindOne(w.Context(), bson.D{}).Err() == nil })
}
