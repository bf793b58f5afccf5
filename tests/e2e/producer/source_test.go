package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// idled leaves a checkpoint at a high-water mark, which is valid for any collection of the
// deployment.
func idled(w *world.World) {
	a := startAndPublish(w, "a", nil, 10, 2)
	checkpointed(w, 10)
	before := w.Checkpoint().Position
	w.Pass(2 * time.Second)
	w.InsertInto(w.Events.Database().Collection("unrelated"), bson.D{{Key: "x", Value: 1}})
	w.Eventually("the checkpoint moves while idle", func() bool { return w.Checkpoint().Position > before })
	a.End()
}

// G6: a stream's checkpoint belongs to one collection and one entity. With another one under the
// same STREAM_NAME the producer does not lead, until an operator accepts it.
func TestG6ACheckpointIsOfOneCollectionAndOneEntity(t *testing.T) {
	for name, c := range map[string]struct {
		change adjustment
		want   []string
	}{
		"collection": {func(c *producer.Config, _ *producer.Options) { c.Collection = "payments" }, []string{"MONGODB_COLLECTION", `"shop.events"`, `"shop.payments"`}},
		"entity": {
			func(c *producer.Config, _ *producer.Options) { c.Topic, c.Queue = "", world.PartitionedQueue },
			[]string{"SERVICE_BUS_QUEUE", world.Topic, world.PartitionedQueue},
		},
	} {
		subtest(t, name, world.Options{}, func(w *world.World) {
			idled(w)
			err := w.StartProducer("b", c.change).Failed()
			for _, want := range append(c.want, "producer reading --drained") {
				require.ErrorContains(w, err, want)
			}
			require.Equal(w, "a", w.Checkpoint().Leader)

			operateWith(w, c.change, "reading").fails("--drained")
			operateWith(w, c.change, "reading", "--drained").succeeds()
			startLeader(w, "b", c.change).End()
			require.ErrorContains(w, w.StartProducer("a", nil).Failed(), c.want[0])
		})
	}
}

// A record of an earlier version names neither collection nor entity: it is accepted, and names
// them from then on.
func TestACheckpointOfAnEarlierVersionIsTakenOver(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		idled(w)
		for _, field := range []string{`,"collection":"shop.events"`, `,"entity":"` + world.Topic + `"`} {
			amend(w, "sluice", checkpointBlob, field, "")
		}
		startLeader(w, "b", nil).End()
		require.Contains(w, blobContent(w, "sluice", checkpointBlob), `"collection":"shop.events"`)
		require.Contains(w, blobContent(w, "sluice", checkpointBlob), `"entity":"`+world.Topic+`"`)
	})
}

// G2: a revision that publishes no updates keeps in the record how earlier ones found the aggregate
// of updates, so that a later revision with another way is refused.
func TestG2ARevisionWithoutUpdatesKeepsHowTheyFoundTheirAggregate(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		byKey := func(c *producer.Config, o *producer.Options) {
			world.AllOperations(c, o)
			c.OnUnknownAggregate = "documentKey"
		}
		startAndPublish(w, "a", world.AllOperations, 50, 10).End()
		require.ErrorContains(w, w.StartProducer("refused", byKey).Failed(), "ON_UNKNOWN_AGGREGATE")
		startLeader(w, "b", nil).End() // without updates
		require.ErrorContains(w, w.StartProducer("refused", byKey).Failed(), "ON_UNKNOWN_AGGREGATE")
		startLeader(w, "c", world.AllOperations).End()
	})
}

// G3: a rewind to before the position at which other settings were accepted would publish changes
// under other aggregates than before, which no read model recognises: it requires a flag. A rewind
// to behind that position does not.
func TestG3ARewindBehindAChangeOfSettingsIsRefused(t *testing.T) {
	byType := func(c *producer.Config, _ *producer.Options) { c.AggregateIDPath = "type" }
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		beginning := time.Now()
		w.Pass(2 * time.Second)
		startAndPublish(w, "a", nil, 20, 4).End()
		operateWith(w, byType, "reading", "--drained").succeeds()
		w.Pass(2 * time.Second)
		accepted := time.Now()
		w.Pass(2 * time.Second)
		b := startLeader(w, "b", byType)
		w.InsertMany(10, 2)
		checkpointed(w, 30)
		b.End() // a leader passes on what the record contains
		back := []string{"token", "rewind", "--to", beginning.UTC().Format(time.RFC3339)}
		operateWith(w, byType, back...).fails("second time", "--reapply")
		operateWith(w, byType, "token", "rewind", "--to", accepted.UTC().Format(time.RFC3339)).succeeds()
		operateWith(w, byType, append(back, "--reapply")...).succeeds()
	})
}

// G6: another cluster with the same names, as after a migration, is another source: the token of
// the first may have a meaning there, and copied documents have other tokens.
func TestG6ACheckpointIsOfOneCluster(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: "it writes config.version, which a mongos has"}, func(w *world.World) {
		version := w.Events.Database().Client().Database("config").Collection("version")
		_, err := version.InsertOne(w.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "clusterId", Value: bson.NewObjectID()}})
		require.NoError(w, err)
		idled(w)
		startLeader(w, "b", nil).End()
		_, err = version.UpdateOne(w.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "clusterId", Value: bson.NewObjectID()}}}})
		require.NoError(w, err)
		require.ErrorContains(w, w.StartProducer("c", nil).Failed(), "MONGODB_URI")
		operate(w, "reading", "--drained").succeeds()
		startLeader(w, "c", nil).End()
	})
}
