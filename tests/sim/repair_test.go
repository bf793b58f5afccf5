package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// repair makes a document of the read model wrong, and has an operator repair its aggregate beside
// the writers, the services and whatever happens to them. The first commands are killed at any
// moment, the last one is not.
func (w *world) repair(step plan.Step) {
	w.work.Go(func() {
		ctx := w.Context()
		random := rand.New(rand.NewPCG(step.Random, 0xd8))
		insert := func(from, to int64) {
			for version := from; version <= to; version++ {
				w.insert(ctx, step.Aggregate, version, fmt.Sprintf("Kind%d", random.IntN(3)))
				pause(ctx, time.Duration(random.Int64N(int64(80*time.Millisecond))))
			}
		}
		insert(1, step.Before)
		w.work.Go(func() { insert(step.Before+1, step.Total) })
		w.index(ctx, w.collectionOf(step.Aggregate), "aggregateId", "version")
		w.commit(ctx, func() error {
			_, err := w.readModel().UpdateOne(ctx, bson.D{{Key: "_id", Value: step.Aggregate}, {Key: "events", Value: bson.D{{Key: "$gt", Value: 0}}}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "firstOccurredAt", Value: "never"}, {Key: "types.Wrong", Value: 1}}}})
			return err
		})
		knows := w.knowsSource(w.collectionOf(step.Aggregate))
		repair := []string{"repair", "--", step.Aggregate}
		w.slow("find", 40, step.Delay.Duration)
		for _, after := range step.KilledDrops {
			w.killedBy(after.Duration, knows, repair...)
		}
		if !w.until(func(code int) bool { return code == commandline.ExitOK }, knows, repair...) {
			return
		}
		w.met.add("aggregates repaired", 1)
		// What a command that was killed had in hand was locked. It is only to be removed: a replay
		// applies nothing of it.
		if w.isAside(step.Aggregate) {
			w.until(func(int) bool { return !w.isAside(step.Aggregate) }, knows, "parked", "replay", step.Aggregate)
		}
	})
}

// knowsSource adds what a command needs that reads a collection of the source and the checkpoint of
// its stream.
func (w *world) knowsSource(collection string) func(c *projector.Config, o *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		c.SourceDatabase, c.SourceCollection = plan.Database, collection
		c.AggregateIDPath, c.EventTypePath, c.VersionPath = "aggregateId", "type", "version"
		c.Stream, c.CheckpointContainer, c.ClaimContainer = streamOf(collection), container, claims
		c.Blob = azure.Blob{ConnectionString: blob.ConnectionString(blobHost)}
		o.Blob = blobOptions(w.blob.Transport())
		if w.plan.Settings.Store != "" {
			c.CheckpointStore, c.CheckpointMongoURI, c.CheckpointMongoDatabase = "mongodb", mongo.URI("mongo:27017"), checkpoints
		}
	}
}
