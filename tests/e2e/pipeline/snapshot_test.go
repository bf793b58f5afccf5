package pipeline_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// fromSnapshot begins a stream of inserts with the documents of the collection.
func fromSnapshot(c *producer.Config, _ *producer.Options) {
	c.Operations = []envelope.Operation{envelope.Insert}
	c.StartFrom, c.SnapshotChunk = "snapshot", 20
}

// slowSnapshot is like fromSnapshot with one document a second.
func slowSnapshot(c *producer.Config, o *producer.Options) {
	fromSnapshot(c, o)
	c.SnapshotRate = 1
}

// indexedForSnapshots creates the index by which a snapshot reads an event store.
func indexedForSnapshots(w *world.World) {
	w.Helper()
	world.CreateIndex(w.T, w.Events, "aggregateId", "version", "_id")
}

// G1, G2, G3: a stream that begins with the documents of its collection, beside writers and by
// leaders that are killed again and again, carries each document once, and the read model has each
// event once.
func TestG3ASnapshotBesideWritersHasEachEventOnce(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, world.Counting, func(w *world.World, setting, collection string) {
		random := seeded(w)
		indexedForSnapshots(w)
		commit := func() { appendEvent(w, fmt.Sprintf("a%02d", random.IntN(40))) }
		for range 300 {
			commit()
		}
		p := w.StartProjector(builds(setting))
		stop := beside(func() time.Duration { return 20 * time.Millisecond }, commit)
		for n := range 12 {
			leader := w.StartProducer(fmt.Sprint("p", n), fromSnapshot)
			w.Leads(fmt.Sprint("p", n))
			w.Pass(time.Duration(20+random.IntN(300)) * time.Millisecond)
			leader.Vanish()
		}
		stop()
		w.StartProducer("last", fromSnapshot)
		w.Eventually("every document is published", func() bool { return w.Bus.Stats(world.Topic).Accepted >= w.Total() })
		emptied(w)
		p.MustEnd()
		documents := map[string]int{}
		for _, m := range w.Took() {
			documents[fmt.Sprint(m.Properties[envelope.PropSubject], "@", m.Properties[envelope.PropVersion])]++
		}
		require.Len(w, documents, w.Total())
		require.Equal(w, w.Inserted, eventsIn(w, collection))
	})
}

// eventsIn returns how many events each aggregate has in a collection of the read model.
func eventsIn(w *world.World, collection string) map[string]int {
	w.Helper()
	found, err := world.CountedIn(w.Context(), w.Client.Database(world.ReadModel).Collection(collection))
	require.NoError(w, err)
	return found
}

// loseHistory makes the source, whose oplog holds 500 entries, forget everything that was written
// so far.
func loseHistory(w *world.World) {
	other := make([]any, 600)
	for i := range other {
		other[i] = bson.D{}
	}
	_, err := w.Client.Database("shop").Collection("other").InsertMany(w.Context(), other)
	require.NoError(w, err)
}

// G1, G3: a stream whose history was lost heals by a snapshot, in which the read model recognises
// by their versions the events that it has, also while leaders are killed and more is written.
func TestG3LostHistoryHealsBySnapshot(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0", Mongo: mongo.Options{OplogEntries: 500}}, world.Counting, func(w *world.World, setting, collection string) {
		random := seeded(w)
		indexedForSnapshots(w)
		commit := func() { appendEvent(w, fmt.Sprintf("a%02d", random.IntN(20))) }
		heals := func(c *producer.Config, o *producer.Options) {
			fromSnapshot(c, o)
			c.StartFrom, c.OnHistoryLost = "latest", "snapshot"
		}
		p := w.StartProjector(builds(setting))
		first := w.StartProducer("first", heals)
		w.Leads("first")
		for range 100 {
			commit()
		}
		w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 100 })
		first.End()
		for range 60 { // of which nothing will be in the change stream
			commit()
		}
		loseHistory(w)
		for n := range 6 {
			leader := w.StartProducer(fmt.Sprint("p", n), heals)
			w.Leads(fmt.Sprint("p", n))
			for range 5 {
				commit()
				w.Pass(time.Duration(random.IntN(60)) * time.Millisecond)
			}
			leader.Vanish()
		}
		w.StartProducer("last", heals)
		eachEventOnce(w, p, collection)
	})
}

// G6: a snapshot that replaces lost history begins when MongoDB can answer what it needs to begin.
func TestG6ASnapshotThatReplacesLostHistoryWaitsForMongoDB(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0", Mongo: mongo.Options{OplogEntries: 500}}, func(w *world.World) {
		indexedForSnapshots(w)
		heals := func(c *producer.Config, o *producer.Options) {
			inserts(c, o)
			c.OnHistoryLost = "snapshot"
		}
		first := w.StartProducer("first", heals)
		w.Leads("first")
		w.Insert("a")
		w.Published()
		first.End()
		w.Insert("a")
		loseHistory(w)
		const interruptedDueToReplStateChange = 11602
		w.FailMongo(6, interruptedDueToReplStateChange, "buildInfo", "listCollections")
		second := w.StartProducer("second", heals)
		w.Eventually("the lost event is published", func() bool { return len(w.Took()) == 3 }) // the snapshot has both
		second.End()
	})
}

// G1, G2, G3: documents of all types of ids, which change and are deleted while a snapshot passes
// over them, are in the mirror as they are in the collection.
func TestG3ASnapshotOfMutableDocumentsIsTheirState(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		random := seeded(w)
		id := func() any {
			n := random.IntN(60)
			switch n % 6 {
			case 0:
				return int64(n)
			case 1:
				return float64(n) + 0.5
			case 2:
				return fmt.Sprint("s", n)
			case 3:
				return bson.ObjectID{byte(n)}
			case 4:
				return bson.D{{Key: "n", Value: int32(n)}}
			}
			return bson.NewDateTimeFromTime(time.Unix(int64(n), 0))
		}
		n := 0
		write := func() {
			n++
			key := bson.D{{Key: "_id", Value: id()}}
			var err error
			switch random.IntN(4) {
			case 0:
				_, err = w.Events.DeleteOne(w.Context(), key)
			case 1:
				_, err = w.Events.UpdateOne(w.Context(), key, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "$set", Value: bson.D{{Key: "last", Value: n}}}})
			default:
				_, err = w.Events.InsertOne(w.Context(), append(key, bson.E{Key: "n", Value: 1}, bson.E{Key: "last", Value: n}))
				if driver.IsDuplicateKeyError(err) {
					err = nil
				}
			}
			require.NoError(w, err)
		}
		for range 200 {
			write()
		}
		settings := func(c *producer.Config, o *producer.Options) {
			world.AllOperations(c, o)
			c.StartFrom, c.SnapshotChunk, c.AggregateIDPath = "snapshot", 7, "_id"
		}
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) {
			c.Projection = "mirror"
		})
		for k := range 10 {
			leader := w.StartProducer(fmt.Sprint("p", k), settings)
			w.Leads(fmt.Sprint("p", k))
			for range 10 {
				write()
				w.Pass(time.Duration(random.IntN(20)) * time.Millisecond)
			}
			leader.Vanish()
		}
		w.StartProducer("last", settings)
		w.Pass(10 * time.Second)
		emptied(w)
		p.MustEnd()
		require.Equal(w, documentsIn(w, w.Events), documentsIn(w, w.Client.Database(world.ReadModel).Collection("mirror")))
	})
}

// dieInChunk leaves a chunk of which a part was published.
func dieInChunk(w *world.World, settings func(*producer.Config, *producer.Options)) {
	w.Helper()
	for n := 40; !w.Checkpoint().InChunk(); n += 3 {
		require.Less(w, n, 400, "no leader died within a chunk")
		instance := fmt.Sprint("p", n)
		leader := w.StartProducer(instance, func(c *producer.Config, o *producer.Options) {
			settings(c, o)
			c.SnapshotChunk, c.BatchMessages, c.MaxInFlightEvents, c.PublishLanes, c.PublishLanesMax = 60, 1, 1, 1, 1
		})
		w.Leads(instance)
		world.LayFuse(n, leader.BusPlug)
		w.Pass(5 * time.Second)
		leader.Vanish()
	}
}

// tear leaves a chunk of which a part was published, and which can no longer be read as of its
// time.
func tear(w *world.World, settings func(*producer.Config, *producer.Options)) {
	w.Helper()
	dieInChunk(w, settings)
	w.Pass(10 * time.Minute)
	w.InsertInto(w.Events.Database().Collection("other"), bson.D{})
}

// ofDocuments begins with a snapshot of documents without versions.
func ofDocuments(c *producer.Config, o *producer.Options) {
	world.AllOperations(c, o)
	c.StartFrom, c.AggregateIDPath = "snapshot", "_id"
}

// G3: a successor publishes the rest of a chunk as of the chunk's time, so what it repeats has the
// same message ids. Readers could not recognise these rows, which have no versions, by anything
// else.
func TestG3ASuccessorRepeatsARowUnderItsMessageID(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		for n := range 100 {
			w.InsertDocument(bson.D{{Key: "_id", Value: n}})
		}
		dieInChunk(w, ofDocuments)
		w.InsertInto(w.Events.Database().Collection("other"), bson.D{}) // what is read now is of a later time
		w.StartProducer("last", ofDocuments)
		w.Leads("last")
		w.Pass(time.Minute)
		rows := 0
		for _, message := range w.Took() {
			if !message.Duplicate {
				rows++
			}
		}
		require.Equal(w, 100, rows)
	})
}

// eachEventOnce waits until a read model has counted every event, and requires that it has counted
// none twice.
func eachEventOnce(w *world.World, p *world.Projector, collection string) {
	w.Helper()
	w.Eventually("the read model has every event", func() bool { return maps.Equal(eventsIn(w, collection), w.Inserted) })
	w.Pass(time.Minute)
	require.Equal(w, w.Inserted, eventsIn(w, collection))
	p.MustEnd()
}

// G3: rows that are read a second time, because their chunk can no longer be read as of its time,
// are recognised by their versions.
func TestG3RowsOfATornChunkAreRecognised(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexedForSnapshots(w)
		appendEvents(w, 200, 20)
		tear(w, fromSnapshot)
		p := w.StartProjector(builds("ledger"))
		w.StartProducer("last", fromSnapshot)
		eachEventOnce(w, p, "accounts")
	})
}

// G6: a chunk of documents without versions that would be published a second time stops the stream,
// until an operator accepts that.
func TestG6ATornChunkWithoutVersionsStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		for n := range 100 {
			w.InsertDocument(bson.D{{Key: "_id", Value: n}})
		}
		tear(w, ofDocuments)
		require.ErrorContains(w, w.StartProducer("stopped", ofDocuments).Failed(), "producer snapshot continue --accept-repeats")
		refused := snapshotCommand(w, ofDocuments, "continue")
		require.Equal(w, 1, refused.Code)
		require.Contains(w, refused.Err, "up to one chunk of documents is published a second time")
		require.Contains(w, snapshotCommand(w, ofDocuments, "continue", "--accept-repeats").Out, "the next leader takes the request")
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" })
		w.StartProducer("last", ofDocuments)
		w.Eventually("every document is copied", func() bool { return count(w, "mirror") == 100 })
		require.Zero(w, p.MustEnd().DeadLettered)
	})
}

// G2, G6: a mirror heals by a snapshot: documents are as they are in the source, and those that are
// deleted while the snapshot is published disappear. A projection that counts cannot know what it
// has seen, and its aggregates are parked.
func TestG6ASnapshotWithoutVersionsReplacesDocumentsOrParks(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0", Mongo: mongo.Options{OplogEntries: 500}}, map[string]bool{"mirror": false, "ledger": true}, func(w *world.World, projectionName string, parks bool) {
		heals := func(c *producer.Config, o *producer.Options) {
			world.AllOperations(c, o)
			c.OnHistoryLost, c.AggregateIDPath, c.SnapshotChunk, c.SnapshotRate = "snapshot", "_id", 5, 10
		}
		p := w.StartProjector(builds(projectionName))
		first := w.StartProducer("first", heals)
		w.Leads("first")
		for n := range 20 {
			w.InsertDocument(bson.D{{Key: "_id", Value: n}, {Key: "n", Value: 0}})
		}
		w.Completed(20)
		first.End()
		_, err := w.Events.UpdateMany(w.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 1}}}})
		require.NoError(w, err)
		loseHistory(w)
		w.StartProducer("second", heals)
		w.Eventually("the snapshot has begun", func() bool { return len(w.Took()) > 20 })
		_, err = w.Events.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: 19}}) // which the snapshot has not reached
		require.NoError(w, err)
		if parks {
			w.Eventually("the aggregates are parked", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered >= 19 })
			require.Equal(w, 20, count(w, "accounts"))
			p.MustEnd()
			return
		}
		copies := w.Client.Database(world.ReadModel).Collection("mirror")
		w.Eventually("every document is as it is in the source", func() bool {
			changed, err := copies.CountDocuments(w.Context(), bson.D{{Key: "n", Value: 1}})
			require.NoError(w, err)
			return count(w, "mirror") == 19 && changed == 19
		})
		require.Zero(w, p.MustEnd().DeadLettered)
	})
}

// G6: whatever would make a snapshot lose or repeat documents stops the stream before anything is
// published, with what to do.
func TestG6ASourceOfWhichNoSnapshotCanBeReadIsRefused(t *testing.T) {
	type row struct {
		prepare func(w *world.World)
		want    string
	}
	world.Each(t, world.Options{Since: "5.0", ReplicaSet: "what a mongos answers about a view is not compared"}, map[string]row{
		"no index": {func(w *world.World) { w.Insert("a") }, `Create it: db.events.createIndex({"aggregateId": 1, "version": 1, "_id": 1})`},
		"a sparse index": {func(w *world.World) {
			_, err := w.Events.Indexes().CreateOne(w.Context(), driver.IndexModel{
				Keys:    bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}, {Key: "_id", Value: 1}},
				Options: options.Index().SetSparse(true),
			})
			require.NoError(w, err)
		}, "createIndex"},
		"an array": {func(w *world.World) {
			indexedForSnapshots(w)
			w.InsertDocument(bson.D{{Key: "aggregateId", Value: bson.A{"a", "b"}}, {Key: "version", Value: 1}})
		}, "has an array in aggregateId"},
		"a view": {func(w *world.World) {
			require.NoError(w, w.Events.Database().CreateView(w.Context(), "events", "others", driver.Pipeline{}))
		}, "view"},
	}, func(w *world.World, name string, test row) {
		test.prepare(w)
		err := w.StartProducer("p", fromSnapshot).Failed()
		require.ErrorContains(w, err, test.want)
		require.Empty(w, w.Took())
	})
}

// G6: settings that decide which rows there are cannot change within a snapshot.
func TestG6SettingsThatChangeWithinASnapshotAreRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexedForSnapshots(w)
		w.InsertMany(100, 10)
		first := w.StartProducer("first", slowSnapshot)
		w.Eventually("a document is published", func() bool { return len(w.Took()) > 0 })
		first.End()
		require.Contains(w, desk(w, slowSnapshot, "status").Out, "of about 100 documents since")
		err := w.StartProducer("second", func(c *producer.Config, o *producer.Options) {
			slowSnapshot(c, o)
			c.Pipeline = `[{"$match": {"fullDocument.version": {"$gt": 3}}}]`
		}).Failed()
		require.ErrorContains(w, err, "Restore the former settings until the snapshot is complete")
	})
}

// G1: a request for a chunk that is never answered is repeated on another connection.
func TestG1AChunkThatDoesNotComeIsAskedForAgain(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexedForSnapshots(w)
		w.InsertMany(100, 10)
		w.StartProducer("p", func(c *producer.Config, o *producer.Options) {
			fromSnapshot(c, o)
			c.SnapshotRate = 20
		})
		w.Eventually("a document is published", func() bool { return len(w.Took()) > 0 })
		w.DelayMongo(2, time.Hour, "find")
		w.Published()
	})
}

// G6: a deployment whose positions are counted has no position for a moment of the source.
func TestG6ASnapshotOfCountedPositionsIsRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{DocumentDB: true}}, func(w *world.World) {
		err := w.StartProducer("p", func(c *producer.Config, o *producer.Options) {
			fromSnapshot(c, o)
			c.FullDocument, c.BeforeChange = "default", "off"
		}).Failed()
		require.ErrorContains(w, err, "no snapshot can be published")
	})
}

// G3, G6: no aggregate is repaired and nothing is built while a snapshot is being published, whose
// rows have later positions than what would be read. Without VERSION_GAP_WAIT they would count a
// second time.
func TestG3NothingIsRepairedOrBuiltWithinASnapshot(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexedForSnapshots(w)
		appendEvents(w, 40, 2)
		set := func(c *projector.Config, o *projector.Options) {
			builds("timeline")(c, o)
			c.VersionGapWait = 0
		}
		p := w.StartProjector(set)
		w.StartProducer("p", slowSnapshot)
		w.Completed(5)
		for _, command := range [][]string{{"repair", "a0"}, {"build"}} {
			refused := w.OperateProjector(operated(w, set), command...)
			require.Equal(w, 1, refused.Code)
			require.Contains(w, refused.Err, "a snapshot is being published within stream shop.events")
		}
		w.Completed(40)
		appendEvent(w, "a0") // with which the snapshot ends in the checkpoint
		w.Completed(41)
		w.Pass(time.Minute)
		require.Zero(w, w.OperateProjector(operated(w, set), "repair", "a0").Code)
		require.Equal(w, w.Inserted, eventsIn(w, "timeline"))
		p.MustEnd()
	})
}
