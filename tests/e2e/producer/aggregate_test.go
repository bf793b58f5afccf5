package producer_test

import (
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

// sessions returns the sessions of the messages that the broker accepted, in its order.
func sessions(w *world.World) (all []string) {
	for _, m := range w.Took() {
		all = append(all, m.SessionID)
	}
	return all
}

// G2 and G3: a change that a second leader reads again, after its document has been deleted, goes
// to the same session as before, as the same message.
func TestG2G3AChangeHasOneAggregateForEveryLeader(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		a := startLeader(w, "a", world.AllOperations)
		insertD1(w)
		w.Eventually("the insert is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 1 })
		w.Pass(2 * time.Second) // it is in the checkpoint
		a.BlobPlug.Pull()
		change(w, 1)
		w.Eventually("the update is published, and in no checkpoint", func() bool { return w.Bus.Stats(world.Topic).Accepted == 2 })
		remove(w)
		b := startLeader(w, "b", world.AllOperations)
		checkpointed(w, 3)
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
		subtest(t, name, world.Options{Since: images}, func(w *world.World) {
			w.KeepImages()
			a := startLeader(w, "a", world.AllOperations)
			insertD1(w)
			checkpointed(w, 1)
			a.End()
			harm(w)
			w.Mongo.ExpireImages()
			err := w.StartProducer("b", world.AllOperations).Failed()
			require.ErrorContains(w, err, "does not contain the id of its aggregate")
			require.ErrorContains(w, err, "expired since")
			require.EqualValues(w, 1, w.Checkpoint().Published, "the checkpoint stays before it")
		})
	}
}

// G6: with a required image MongoDB itself refuses, without naming the change: the error explains
// how to find it.
func TestG6ARequiredImageThatExpiredIsNamedInTwoSteps(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		required := all(func(c *producer.Config, _ *producer.Options) { c.BeforeChange = "required" })
		w.KeepImages()
		a := startLeader(w, "a", required)
		insertD1(w)
		checkpointed(w, 1)
		a.End()
		change(w, 1)
		w.Mongo.ExpireImages()
		require.ErrorContains(t, w.StartProducer("b", required).Failed(), "FULL_DOCUMENT_BEFORE_CHANGE=whenAvailable")
		require.ErrorContains(t, w.StartProducer("c", world.AllOperations).Failed(), `update at 82`)
		require.EqualValues(t, 1, w.Checkpoint().Published, "the checkpoint stays before it")
	})
}

// G6: a collection without images is refused at the start, also by a standby, unless no change
// there can need an image.
func TestG6ACollectionWithoutImagesIsRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		insertD1(w)
		leader := startLeader(w, "leader", nil)
		require.ErrorContains(t, w.StartProducer("standby", world.AllOperations).Failed(), "changeStreamPreAndPostImages: {enabled: true}")
		w.Leads("leader")
		leader.End()

		for name, set := range map[string]adjustment{
			"by the document's id": func(c *producer.Config, _ *producer.Options) { c.AggregateIDPath = "_id" },
			"by the key":           func(c *producer.Config, _ *producer.Options) { c.OnUnknownAggregate = "documentKey" },
		} {
			p := w.StartProducer("p", func(c *producer.Config, o *producer.Options) {
				world.AllOperations(c, o)
				set(c, o)
				c.Stream = "shop." + c.AggregateIDPath + c.OnUnknownAggregate
			})
			w.Pass(5 * time.Second)
			require.Empty(t, p.Done, name)
			p.End()
		}
		operateWith(w, world.AllOperations, "doctor").reports(commandline.ExitProblem, "changeStreamPreAndPostImages")
	})
}

// With ON_UNKNOWN_AGGREGATE=documentKey a change always uses its document key, whether or not the
// collection keeps images at the time of reading.
func TestG2AChangeByKeyAlwaysUsesItsKey(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		a := startLeader(w, "a", func(c *producer.Config, o *producer.Options) {
			world.AllOperations(c, o)
			c.OnUnknownAggregate = "documentKey"
		})
		insertD1(w)
		w.Eventually("it is published", func() bool { return len(w.Took()) == 1 }) // between sessions there is no order
		change(w, 1)
		w.Eventually("both are published", func() bool { return len(w.Took()) == 2 })
		w.Mongo.ExpireImages()
		remove(w)
		w.Eventually("all are published", func() bool { return len(w.Took()) == 3 })
		a.End()
		require.Equal(t, []string{"A", "D1", "D1"}, sessions(w))
	})
}

// all returns a change of settings that includes all operations.
func all(change adjustment) adjustment {
	return func(c *producer.Config, o *producer.Options) {
		world.AllOperations(c, o)
		change(c, o)
	}
}

// G2: settings that would put an aggregate's next event into another session, or give it another
// number, are refused until an operator confirms that no messages of the former settings are left.
func TestG2OtherReadingSettingsAreRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		a := startAndPublish(w, "a", world.AllOperations, 50, 10)
		byType := all(func(c *producer.Config, _ *producer.Options) { c.AggregateIDPath = "type" })
		for setting, change := range map[string]adjustment{
			"AGGREGATE_ID_PATH": byType,
			"VERSION_PATH":      func(c *producer.Config, _ *producer.Options) { c.VersionPath = "number" },
			"PIPELINE": func(c *producer.Config, _ *producer.Options) {
				c.Pipeline = `[{"$set": {"fullDocument.aggregateId": "one"}}]`
			},
			"ON_UNKNOWN_AGGREGATE": func(c *producer.Config, _ *producer.Options) { c.OnUnknownAggregate = "documentKey" },
		} {
			require.ErrorContains(t, w.StartProducer("other", all(change)).Failed(), setting)
		}
		a.End()
		operateWith(w, byType, "reading").fails(`AGGREGATE_ID_PATH was "aggregateId" and is now "type"`)
		require.Contains(t, operateWith(w, world.AllOperations, "reading").Out, "nothing to do")
		require.Contains(t, operateWith(w, byType, "doctor").Out, "producer reading")
		require.Zero(t, operateWith(w, all(func(c *producer.Config, _ *producer.Options) { c.VersionPath = "number" }), "reading").Code, "no message waits for a version")
		operateWith(w, byType, "reading", "--drained").succeeds()
		b := w.StartProducer("b", byType)
		w.Insert("x")
		w.Eventually("it is published by the new path", func() bool { return w.Took()[len(w.Took())-1].SessionID == "Counted" })
		b.End()

		// The settings that are not compared may change at any time.
		c := w.StartProducer("c", func(c *producer.Config, o *producer.Options) {
			byType(c, o)
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
		lead := func(name string, published int) {
			p := startLeader(w, name, nil)
			w.InsertDocument(bson.D{{Key: "aggregateId", Value: seven}})
			w.Eventually("it is published", func() bool { return len(w.Took()) == published })
			checkpointed(w, published)
			p.End()
		}
		lead("a", 1)
		require.Equal(t, 5, w.Checkpoint().Schema, "a version that knows no such text must not lead")
		amend(w, "sluice", checkpointBlob, `,"numbers":"byValue"`, "")
		amend(w, "sluice", checkpointBlob, `"schema":5`, `"schema":1`)
		lead("b", 2)
		require.Equal(t, 1, w.Checkpoint().Schema, "the version before may lead again")
		require.Contains(t, operateWith(w, nil, "reading").Out, "nothing to do")
		require.Contains(t, operateWith(w, nil, "doctor").Out, "aggregates")
		lead("c", 3)
		operateWith(w, nil, "reading", "--drained").succeeds("the text of numbers in ids")
		lead("d", 4)
		require.Equal(t, []string{"7", `{"$numberDecimal":"7"}`, `{"$numberDecimal":"7"}`, "7"}, sessions(w))
		require.Contains(t, operateWith(w, nil, "reading", "--drained").Out, "nothing to do")
	})
}

// G6: a user who may not read the configuration of a sharded cluster gets the aggregate of updates
// from the shard key, which every document's key holds.
func TestG6TheShardKeyGivesTheAggregateToAUserWithoutRightsOnConfig(t *testing.T) {
	sharded := &mongo.Mongos{ShardKeys: map[string]string{"shop.events": "aggregateId"}, ConfigForbidden: true}
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{Mongos: sharded}}, func(w *world.World) {
		require.NoError(w, w.Events.Database().CreateCollection(w.Context(), w.Events.Name()))
		a := startLeader(w, "a", world.AllOperations)
		insertD1(w)
		change(w, 1)
		w.Eventually("both are published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 2 })
		require.Equal(t, []string{"A", "A"}, sessions(w))
		a.End()
	})
}
