package live

import (
	"errors"
	"strings"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/books"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// judge judges the recorded run after everything has ended.
func (w *world) judge() {
	_, err := w.collection(w.settings.Projection).InsertOne(w.Context(), bson.D{{Key: "_id", Value: last}})
	require.NoError(w, err)
	w.until("the witness has seen everything", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.over
	})
	_, err = w.collection(w.settings.Projection).DeleteOne(w.Context(), bson.D{{Key: "_id", Value: last}})
	require.NoError(w, err)
	w.collect()
	w.run.Writes = w.checkpoints.All()
	if w.run.Aside == nil {
		w.setAside()
	}
	for _, recorder := range w.leases {
		w.run.Lease = errors.Join(w.run.Lease, leasecheck.Check(recorder.History(), patience))
	}
	w.compare()
	w.trace("%s; it recognised %d repeats; %d writes of checkpoints", w.counts(), w.rec.Counts().Duplicates, len(w.run.Writes))
	for n, violation := range checker.Judge(w.run) {
		if n == 10 {
			w.Error("and more")
			break
		}
		w.Error(violation)
	}
}

// setAside records the dead letters before anything is fixed, and how many there must be.
func (w *world) setAside() {
	aside := w.aside()
	committed, _ := w.rec.Progress()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.Aside = aside
	for n, s := range w.run.Sick {
		w.run.Sick[n].Total = committed[s.Aggregate]
	}
}

// aside returns the content of the dead-letter queue.
func (w *world) aside() (aside []checker.Aside) {
	for _, m := range w.stack.ServiceBus.PeekDeadLetters(w.stack.Route.Out(), 10_000) {
		aside = append(aside, checker.Aside{MessageID: m.MessageID, Session: m.SessionID, Reason: m.Reason, Description: m.Description})
	}
	return aside
}

// fold returns the timeline of every committed event that must be visible.
func (w *world) fold() *history.Model {
	m, visible := &history.Model{}, w.run.Visible()
	for _, collection := range w.settings.Collections {
		require.NoError(w, workload.Scan(w.Context(), w.client.Database(database).Collection(collection), func(s workload.Stored) {
			if visible(history.Commit{Aggregate: s.AggregateID, Version: s.Version}) {
				m.Fold(s.AggregateID, s.Version, s.Type, s.OccurredAt)
			}
		}))
	}
	return m
}

// compare compares the final read model with what was committed.
func (w *world) compare() {
	if w.settings.Projection != orders {
		actual, err := witness.ReadTimeline(w.Context(), w.collection(w.settings.Projection))
		require.NoError(w, err)
		w.run.Expected, w.run.Actual = w.fold(), actual
		return
	}
	var kept books.Books
	require.NoError(w, kept.Read(w.Context(), w.client.Database(database).Collection(w.settings.Collections[0])))
	c, _, err := kept.Compare(w.Context(), w.collection(projection.OrdersCollection), w.collection(projection.CustomersCollection))
	require.NoError(w, err)
	if !c.OK() {
		w.Errorf("the read model differs from the books: %d events lost, %d duplicated:\n%s", c.Lost, c.Doubled,
			strings.Join(c.Differences[:min(10, len(c.Differences))], "\n"))
	}
}
