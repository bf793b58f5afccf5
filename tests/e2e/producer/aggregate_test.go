package producer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The oldest versions of MongoDB with images of documents from before a change, and with changes in
// fragments.
const images, fragments = "6.0", "6.0"

// readsOplog is why a test needs a replica set.
const readsOplog = "it reads the oplog, which a mongos refuses"

func change(w *world.World, n int) {
	w.Helper()
	_, err := w.Events.UpdateOne(w.Context(), bson.D{{Key: "_id", Value: "D1"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}})
	require.NoError(w, err)
}

func remove(w *world.World) {
	w.Helper()
	_, err := w.Events.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: "D1"}})
	require.NoError(w, err)
}

func insertD1(w *world.World) {
	w.Helper()
	w.InsertDocument(bson.D{{Key: "_id", Value: "D1"}, {Key: "aggregateId", Value: "A"}, {Key: "n", Value: 0}})
}

// G2 and G3: a change that a second leader reads again, after its document has been deleted, goes
// to the same session as before, as the same message.
func TestG2G3AChangeHasOneAggregateForEveryLeader(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		a := w.StartProducer("a", world.AllOperations)
		w.Leads("a")
		insertD1(w)
		w.Eventually("the insert is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 1 })
		w.Pass(2 * time.Second) // it is in the checkpoint
		a.BlobPlug.Pull()
		change(w, 1)
		w.Eventually("the update is published, and in no checkpoint", func() bool { return w.Bus.Stats(world.Topic).Accepted == 2 })
		remove(w)
		b := w.StartProducer("b", world.AllOperations)
		w.Leads("b")
		w.Eventually("b has published all", func() bool { return w.Checkpoint().Published == 3 })
		a.BlobPlug.PlugIn()
		b.End()
		a.End()

		ids := map[any]string{} // by operation
		for _, m := range w.Took() {
			require.Equal(t, "A", m.SessionID, "epoch %v: %v", m.Properties["epoch"], m.Properties["operation"])
			if first, again := ids[m.Properties["operation"]]; again {
				require.Equal(t, first, m.MessageID)
				require.True(t, m.Duplicate)
			}
			ids[m.Properties["operation"]] = m.MessageID
		}
		require.Len(t, ids, 3)
	})
}

// G6: a change whose image has expired before it was read stops the stream, and the error gives the
// remedy.
func TestG6AnExpiredImageStopsTheStream(t *testing.T) {
	for name, harm := range map[string]func(*world.World){
		"an update": func(w *world.World) { change(w, 1) }, "a delete": remove,
	} {
		t.Run(name, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
				w.KeepImages()
				a := w.StartProducer("a", world.AllOperations)
				w.Leads("a")
				insertD1(w)
				w.Eventually("the insert is published", func() bool { return w.Checkpoint().Published == 1 })
				a.End()
				harm(w)
				w.Mongo.ExpireImages()
				b := w.StartProducer("b", world.AllOperations)
				err := b.Failed()
				require.ErrorContains(t, err, "does not contain the id of its aggregate")
				require.ErrorContains(t, err, "expired since")
				require.EqualValues(t, 1, w.Checkpoint().Published, "the checkpoint stays before it")
			})
		})
	}
}

// G6: with a required image MongoDB itself refuses, without naming the change: the error explains
// how to find it.
func TestG6ARequiredImageThatExpiredIsNamedInTwoSteps(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		required := all(func(c *producer.Config) { c.BeforeChange = "required" })
		w.KeepImages()
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { required(c) })
		w.Leads("a")
		insertD1(w)
		w.Eventually("the insert is published", func() bool { return w.Checkpoint().Published == 1 })
		a.End()
		change(w, 1)
		w.Mongo.ExpireImages()
		b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { required(c) })
		require.ErrorContains(t, b.Failed(), "FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable")
		require.ErrorContains(t, w.StartProducer("c", world.AllOperations).Failed(), `update at 82`)
		require.EqualValues(t, 1, w.Checkpoint().Published, "the checkpoint stays before it")
	})
}

// G6: a collection without images is refused at the start, also by a standby, unless no change
// there can need an image.
func TestG6ACollectionWithoutImagesIsRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		insertD1(w)
		leader := w.StartProducer("leader", nil)
		w.Leads("leader")
		standby := w.StartProducer("standby", world.AllOperations)
		require.ErrorContains(t, standby.Failed(), "changeStreamPreAndPostImages: {enabled: true}")
		w.Leads("leader")
		leader.End()

		for name, set := range map[string]func(*producer.Config){
			"by the document's id": func(c *producer.Config) { c.AggregateIDPath = "_id" },
			"by the key":           func(c *producer.Config) { c.OnUnknownAggregate = "documentKey" },
		} {
			p := w.StartProducer("p", func(c *producer.Config, o *producer.Options) {
				world.AllOperations(c, o)
				set(c)
				c.Stream = "shop." + c.AggregateIDPath + c.OnUnknownAggregate
			})
			w.Pass(5 * time.Second)
			select {
			case err := <-p.Done:
				require.NoError(t, err, name)
			default:
			}
			p.End()
		}
		doctor := operateWith(w, func(c *producer.Config) { world.AllOperations(c, nil) }, "doctor")
		require.Equal(t, commandline.ExitProblem, doctor.Code)
		require.Contains(t, doctor.Out, "changeStreamPreAndPostImages")
	})
}

// With ON_UNKNOWN_AGGREGATE=documentKey a change always uses its document key, whether or not the
// collection keeps images at the time of reading.
func TestG2AChangeByKeyAlwaysUsesItsKey(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		a := w.StartProducer("a", func(c *producer.Config, o *producer.Options) {
			world.AllOperations(c, o)
			c.OnUnknownAggregate = "documentKey"
		})
		w.Leads("a")
		insertD1(w)
		w.Eventually("it is published", func() bool { return len(w.Took()) == 1 }) // between sessions there is no order
		change(w, 1)
		w.Eventually("both are published", func() bool { return len(w.Took()) == 2 })
		w.Mongo.ExpireImages()
		remove(w)
		w.Eventually("all are published", func() bool { return len(w.Took()) == 3 })
		a.End()
		require.Equal(t, "A", w.Took()[0].SessionID)
		require.Equal(t, "D1", w.Took()[1].SessionID)
		require.Equal(t, "D1", w.Took()[2].SessionID)
	})
}

// all returns a change of settings that includes all operations.
func all(change func(*producer.Config)) func(*producer.Config) {
	return func(c *producer.Config) {
		world.AllOperations(c, nil)
		change(c)
	}
}

// G2: settings that would put an aggregate's next event into another session, or give it another
// number, are refused until an operator confirms that no messages of the former settings are left.
func TestG2OtherReadingSettingsAreRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		a := w.StartProducer("a", world.AllOperations)
		w.Leads("a")
		w.InsertMany(50, 10)
		w.Published()
		byType := all(func(c *producer.Config) { c.AggregateIDPath = "type" })
		for setting, change := range map[string]func(*producer.Config){
			"AGGREGATE_ID_PATH":    byType,
			"VERSION_PATH":         func(c *producer.Config) { c.VersionPath = "number" },
			"PIPELINE":             func(c *producer.Config) { c.Pipeline = `[{"$set": {"fullDocument.aggregateId": "one"}}]` },
			"ON_UNKNOWN_AGGREGATE": func(c *producer.Config) { c.OnUnknownAggregate = "documentKey" },
		} {
			other := w.StartProducer("other", func(c *producer.Config, _ *producer.Options) { all(change)(c) })
			require.ErrorContains(t, other.Failed(), setting)
		}
		a.End()
		undrained := operateWith(w, byType, "reading")
		require.Equal(t, commandline.ExitProblem, undrained.Code)
		require.Contains(t, undrained.Err, `AGGREGATE_ID_PATH was "aggregateId" and is now "type"`)
		require.Contains(t, operateWith(w, all(func(*producer.Config) {}), "reading").Out, "nothing to do")
		require.Contains(t, operateWith(w, byType, "doctor").Out, "producer reading")
		require.Zero(t, operateWith(w, all(func(c *producer.Config) { c.VersionPath = "number" }), "reading").Code, "no message waits for a version")
		require.Zero(t, operateWith(w, byType, "reading", "--drained").Code)
		b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { byType(c) })
		w.Insert("x")
		w.Eventually("it is published by the new path", func() bool { return w.Took()[len(w.Took())-1].SessionID == "Counted" })
		b.End()

		// The settings that are not compared may change at any time.
		c := w.StartProducer("c", func(c *producer.Config, _ *producer.Options) {
			byType(c)
			c.Operations = []envelope.Operation{envelope.Insert}
			c.Pipeline = `[{"$match": {"operationType": "insert"}}]`
		})
		w.Insert("y")
		w.Eventually("it is published", func() bool { return len(w.Took()) == 52 })
		c.End()
	})
}

// G2: a stream that began with a separate text for each numeric type keeps it, whichever version
// leads, until an operator accepts the new one and confirms that no messages are left. So the
// changes of an aggregate are never in two sessions.
func TestG2AStreamKeepsTheTextOfItsNumbers(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		seven, err := bson.ParseDecimal128("7")
		require.NoError(t, err)
		sessions := func() (all []string) {
			for _, m := range w.Took() {
				all = append(all, m.SessionID)
			}
			return all
		}
		lead := func(name string, published int) {
			p := w.StartProducer(name, nil)
			w.Leads(name)
			w.InsertDocument(bson.D{{Key: "aggregateId", Value: seven}})
			w.Eventually("it is published", func() bool { return len(w.Took()) == published })
			w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == int64(published) })
			p.End()
		}
		lead("a", 1)
		require.Equal(t, 5, w.Checkpoint().Schema, "a version that knows no such text must not lead")
		earlier := strings.Replace(blobContent(w, checkpointBlob), `,"numbers":"byValue"`, "", 1)
		putBlob(w, checkpointBlob, strings.Replace(earlier, `"schema":5`, `"schema":1`, 1))
		lead("b", 2)
		require.Equal(t, 1, w.Checkpoint().Schema, "the version before may lead again")
		require.Contains(t, operateWith(w, nil, "reading").Out, "nothing to do")
		require.Contains(t, operateWith(w, nil, "doctor").Out, "aggregates")
		lead("c", 3)
		accepted := operateWith(w, nil, "reading", "--drained")
		require.Zero(t, accepted.Code, accepted.Err)
		require.Contains(t, accepted.Out, "the text of numbers in ids")
		lead("d", 4)
		require.Equal(t, []string{"7", `{"$numberDecimal":"7"}`, `{"$numberDecimal":"7"}`, "7"}, sessions())
		require.Contains(t, operateWith(w, nil, "reading", "--drained").Out, "nothing to do")
	})
}

// G6: a user who may not read the configuration of a sharded cluster gets the aggregate of updates
// from the shard key, which every document's key holds.
func TestG6TheShardKeyGivesTheAggregateToAUserWithoutRightsOnConfig(t *testing.T) {
	sharded := &mongo.Mongos{ShardKeys: map[string]string{"shop.events": "aggregateId"}, ConfigForbidden: true}
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{Mongos: sharded}}, func(w *world.World) {
		require.NoError(w, w.Events.Database().CreateCollection(w.Context(), w.Events.Name()))
		a := w.StartProducer("a", world.AllOperations)
		w.Leads("a")
		insertD1(w)
		change(w, 1)
		w.Eventually("both are published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 2 })
		for _, m := range w.Took() {
			require.Equal(t, "A", m.SessionID)
		}
		a.End()
	})
}
