package sim

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// prepare creates the indexes that snapshots need, and commits what is there before the streams
// begin.
func (w *world) prepare(ctx context.Context) {
	if w.plan.Settings.Snapshot == "" {
		return
	}
	for _, name := range plan.Collections[:w.plan.Settings.Streams] {
		w.commit(ctx, func() error {
			_, err := w.client.Database(plan.Database).Collection(name).Indexes().CreateOne(ctx, driver.IndexModel{
				Keys: bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}, {Key: "_id", Value: 1}},
			})
			return err
		})
	}
	for _, e := range w.plan.Before {
		w.append(ctx, e)
	}
}

// append commits the next event of an aggregate of the workload.
func (w *world) append(ctx context.Context, e plan.Event) {
	of := plan.Event{Collection: e.Collection, Aggregate: e.Aggregate}
	w.committed[of]++
	w.insertOf(ctx, history.Commit{Stream: streamOf(e.Collection), Aggregate: e.Aggregate, Version: w.committed[of]}, e.Kind)
}

// snapshot sets what a producer needs for the plan's snapshots.
func snapshot(c *producer.Config, s plan.Settings) {
	switch s.Snapshot {
	case "":
		return
	case plan.SnapshotStart:
		c.StartFrom = "snapshot"
	case plan.SnapshotHeal:
		c.OnHistoryLost = "snapshot"
	}
	c.SnapshotChunk, c.SnapshotRate = s.SnapshotChunk, s.SnapshotRate
}

// loseHistory kills the producers, and lets MongoDB forget all changes before they start again.
func (w *world) loseHistory(a *agenda, step plan.Step) {
	for _, s := range w.producers {
		s.kill(step.Silent)
	}
	w.later(a, step.For.Duration, func() {
		w.mongo.ForgetChanges(plan.Database)
		w.lost.Add(1)
		for _, s := range w.producers {
			s.fill()
		}
	})
}
