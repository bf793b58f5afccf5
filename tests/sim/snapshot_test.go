package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
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
		w.index(ctx, name, "aggregateId", "version", "_id")
	}
	for _, e := range w.plan.Before {
		w.append(ctx, e)
	}
}

// index creates an index of a collection of the source.
func (w *world) index(ctx context.Context, collection string, fields ...string) {
	var keys bson.D
	for _, field := range fields {
		keys = append(keys, bson.E{Key: field, Value: 1})
	}
	w.commit(ctx, func() error {
		_, err := w.client.Database(plan.Database).Collection(collection).Indexes().CreateOne(ctx, driver.IndexModel{Keys: keys})
		return err
	})
}

// append commits the next event of an aggregate of the workload.
func (w *world) append(ctx context.Context, e plan.Event) {
	if w.documents != nil {
		w.documents.change(ctx, e)
		return
	}
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

// commandSnapshot has the operator start, pause or resume the snapshot of a stream, beside
// everything else. A command that fails is not repeated before everything has healed.
func (w *world) commandSnapshot(step plan.Step) {
	w.work.Go(func() {
		if step.Command == plan.StartSnapshot {
			w.startSnapshot(step.Stream)
			return
		}
		args := []string{"snapshot", step.Command, "--stream", step.Stream}
		if step.Command == "pause" {
			args = append(args, "--yes")
		}
		if code, output := w.produce(args...); code == commandline.ExitOK && !strings.Contains(output, "nothing to do") {
			w.met.add("commands for snapshots", 1)
		}
	})
}

// startSnapshot starts the snapshot of a stream.
func (w *world) startSnapshot(stream string) bool {
	args := []string{"snapshot", "start", "--readers-know", "--stream", stream}
	if w.plan.Settings.Snapshot == plan.SnapshotAggregates {
		if args = append(args, "--ids", strings.Join(w.old(stream), ",")); args[len(args)-1] == "" {
			return true // no document was there before
		}
	}
	code, output := w.produce(args...)
	// A request is known to be carried out only by its answer; without it there is a later attempt.
	started := code == commandline.ExitOK && strings.Contains(output, "a snapshot begins")
	if started {
		w.met.add("commands for snapshots", 1)
		w.started.Store(stream, true)
	}
	return started
}

// old returns the aggregates whose events were there before the streams began, of one stream.
func (w *world) old(stream string) (names []string) {
	for _, e := range w.plan.Before {
		of := streamOf(e.Collection)
		if of == "" {
			of = streamOf(w.collectionOf(e.Aggregate))
		}
		if of == stream && !slices.Contains(names, e.Aggregate) {
			names = append(names, e.Aggregate)
		}
	}
	return names
}

// settleSnapshots has the operator resume what is paused, and start what could not be started,
// once everything has healed.
func (w *world) settleSnapshots() {
	s := w.plan.Settings
	if s.Snapshot == "" {
		return
	}
	for _, stream := range s.StreamNames() {
		settles := func(do func() bool) {
			if !w.eventually(settled, func() bool { w.tend(); return do() }) {
				w.unrest("the snapshot of %s is not settled", stream)
			}
		}
		resumed := func() bool {
			code, output := w.produce("snapshot", "resume", "--stream", stream)
			return code == commandline.ExitOK && !strings.Contains(output, "next leader") || strings.Contains(output, "no snapshot of stream")
		}
		settles(resumed)
		if _, started := w.started.Load(stream); !started && (s.Snapshot == plan.SnapshotRequest || s.Snapshot == plan.SnapshotAggregates) {
			settles(func() bool {
				// One may be published whose answer was lost.
				_, output := w.produce("snapshot", "status", "--stream", stream)
				return strings.Contains(output, "(requested)") || strings.Contains(output, "(aggregates)") || w.startSnapshot(stream)
			})
			settles(resumed)
		}
	}
}

// loseHistory kills the producers, and lets MongoDB forget all changes before they start again.
func (w *world) loseHistory(a *agenda, step plan.Step) {
	for _, s := range w.producers {
		s.kill(step.Silent)
	}
	w.later(a, step.For.Duration, func() {
		w.mongo.ForgetChanges(plan.Database)
		w.record.Note(func(run *checker.Run) { run.Losses = append(run.Losses, time.Now()) })
		for _, s := range w.producers {
			s.fill()
		}
	})
}
