package producer_test

import (
	"strings"
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
	a := w.StartProducer("a", nil)
	w.Leads("a")
	w.InsertMany(10, 2)
	w.Published()
	w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == 10 })
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
		change func(*producer.Config)
		says   []string
	}{
		"collection": {func(c *producer.Config) { c.Collection = "payments" }, []string{"MONGODB_COLLECTION", `"shop.events"`, `"shop.payments"`}},
		"entity": {
			func(c *producer.Config) { c.Topic, c.Queue = "", world.PartitionedQueue },
			[]string{"SERVICE_BUS_QUEUE", world.Topic, world.PartitionedQueue},
		},
	} {
		t.Run(name, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				idled(w)
				other := func(p *producer.Config, _ *producer.Options) { c.change(p) }
				err := w.StartProducer("b", other).Failed()
				for _, says := range append(c.says, "producer reading --drained") {
					require.ErrorContains(w, err, says)
				}
				require.Equal(w, "a", w.Checkpoint().Leader)

				refused := operateWith(w, c.change, "reading")
				require.NotZero(w, refused.Code)
				require.Contains(w, refused.Err, "--drained")
				accepted := operateWith(w, c.change, "reading", "--drained")
				require.Zero(w, accepted.Code, accepted.Err)
				b := w.StartProducer("b", other)
				w.Leads("b")
				b.End()
				require.ErrorContains(w, w.StartProducer("a", nil).Failed(), c.says[0])
			})
		})
	}
}

// A record of an earlier version names neither collection nor entity: it is accepted, and names
// them from then on.
func TestACheckpointOfAnEarlierVersionIsTakenOver(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		idled(w)
		text := blobContent(w, checkpointBlob)
		for _, field := range []string{`,"collection":"shop.events"`, `,"entity":"` + world.Topic + `"`} {
			require.Contains(w, text, field)
			text = strings.Replace(text, field, "", 1)
		}
		putBlob(w, checkpointBlob, text)
		b := w.StartProducer("b", nil)
		w.Leads("b")
		b.End()
		require.Contains(w, blobContent(w, checkpointBlob), `"collection":"shop.events"`)
		require.Contains(w, blobContent(w, checkpointBlob), `"entity":"`+world.Topic+`"`)
	})
}

// G2: a revision that publishes no updates keeps in the record how earlier ones found the aggregate
// of updates, so that a later revision with another way is refused.
func TestG2ARevisionWithoutUpdatesKeepsWhereTheyBelong(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		byKey := func(c *producer.Config, o *producer.Options) {
			world.AllOperations(c, o)
			c.OnUnknownAggregate = "documentKey"
		}
		a := w.StartProducer("a", world.AllOperations)
		w.Leads("a")
		w.InsertMany(50, 10)
		w.Published()
		a.End()
		require.ErrorContains(w, w.StartProducer("refused", byKey).Failed(), "ON_UNKNOWN_AGGREGATE")
		b := w.StartProducer("b", nil) // without updates
		w.Leads("b")
		b.End()
		require.ErrorContains(w, w.StartProducer("refused", byKey).Failed(), "ON_UNKNOWN_AGGREGATE")
		c := w.StartProducer("c", world.AllOperations)
		w.Leads("c")
		c.End()
	})
}

// G3: a rewind to before the position at which other settings were accepted would publish changes
// under other aggregates than before, which no read model recognises: it requires a flag. A rewind
// to behind that position does not.
func TestG3ARewindBehindAChangeOfSettingsIsRefused(t *testing.T) {
	byType := func(c *producer.Config) { c.AggregateIDPath = "type" }
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		beginning := time.Now()
		w.Pass(2 * time.Second)
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(20, 4)
		w.Published()
		a.End()
		require.Zero(w, operateWith(w, byType, "reading", "--drained").Code)
		w.Pass(2 * time.Second)
		accepted := time.Now()
		w.Pass(2 * time.Second)
		b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { byType(c) })
		w.Leads("b")
		w.InsertMany(10, 2)
		w.Eventually("they are published by type", func() bool { return w.Checkpoint().Published == 30 })
		b.End() // a leader passes on what the record contains
		back := []string{"token", "rewind", "--to", beginning.UTC().Format(time.RFC3339)}
		refused := operateWith(w, byType, back...)
		require.NotZero(w, refused.Code)
		require.Contains(w, refused.Err, "second time")
		require.Contains(w, refused.Err, "--reapply")
		within := operateWith(w, byType, "token", "rewind", "--to", accepted.UTC().Format(time.RFC3339))
		require.Zero(w, within.Code, within.Err)
		again := operateWith(w, byType, append(back, "--reapply")...)
		require.Zero(w, again.Code, again.Err)
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
		b := w.StartProducer("b", nil)
		w.Leads("b")
		b.End()
		_, err = version.UpdateOne(w.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "clusterId", Value: bson.NewObjectID()}}}})
		require.NoError(w, err)
		require.ErrorContains(w, w.StartProducer("c", nil).Failed(), "MONGODB_URI")
		require.Zero(w, operate(w, "reading", "--drained").Code)
		c := w.StartProducer("c", nil)
		w.Leads("c")
		c.End()
	})
}
