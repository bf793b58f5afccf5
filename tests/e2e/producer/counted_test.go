package producer_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// documentDB has tokens that do not sort, and few other features: positions are counted there.
var documentDB = world.Options{Mongo: mongo.Options{DocumentDB: true}}

// plainly sets the settings that such a deployment accepts.
func plainly(c *producer.Config, o *producer.Options) {
	world.AllOperations(c, o)
	c.FullDocument, c.BeforeChange, c.OnUnknownAggregate = "default", "off", "documentKey"
}

func plainlyWith(pipeline string) adjustment {
	return func(c *producer.Config, o *producer.Options) {
		plainly(c, o)
		c.Pipeline = pipeline
	}
}

// unstably filters by documents that are looked up.
func unstably(c *producer.Config, _ *producer.Options) {
	c.BeforeChange, c.Pipeline = "off", `[{"$match": {"fullDocument.type": "Counted"}}]`
}

// startCounting runs the first leader of a stream and lets it publish one event: there is no token
// before that.
func startCounting(w *world.World, instance string, change adjustment) *world.Producer {
	w.Helper()
	p := w.StartProducer(instance, change)
	w.Eventually(instance+" reads", func() bool { return streamIsOpen(w) })
	w.Insert("first")
	w.Leads(instance)
	return p
}

// streamIsOpen reports whether the server has an open change stream.
func streamIsOpen(w *world.World) bool { return w.Mongo.OpenStreams() > 0 }

// judgeNumbers requires that every event has one position, no matter which leader published it and
// how many times, and that no two events share one.
func judgeNumbers(w *world.World) {
	w.Helper()
	positions, events := map[string]string{}, map[string]string{}
	for _, a := range w.Took() {
		position := a.Properties[envelope.PropPosition].(string)
		require.Regexp(w, regexp.MustCompile(`^n\d{10}\.\d{18}$`), position)
		if was, sent := positions[a.MessageID]; sent {
			require.Equal(w, was, position, "the same event")
		}
		if other, given := events[position]; given {
			require.Equal(w, other, a.MessageID, "the same position")
		}
		positions[a.MessageID], events[position] = position, a.MessageID
	}
}

// positionsGrow requires that the positions of each session grow with every message.
func positionsGrow(w *world.World) {
	w.Helper()
	highest := map[string]string{}
	for _, accepted := range w.Took() {
		position := accepted.Properties[envelope.PropPosition].(string)
		require.Greater(w, position, highest[accepted.SessionID])
		highest[accepted.SessionID] = position
	}
}

func TestG1G2ProducerOfADeploymentWithoutSortableTokens(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		a := startCounting(w, "a", plainly)
		require.Contains(t, a.Log.Text(), "returns no resume token before the first change")
		w.InsertMany(500, 7)
		w.Published()
		a.End()
		require.Equal(t, fmt.Sprintf("n0000000001.%018d", w.Total()), w.Checkpoint().Position)

		b := w.StartProducer("b", plainly)
		w.InsertMany(100, 7)
		w.Published()
		b.End()
		judgeNumbers(w)
		require.Zero(t, w.Bus.Stats(world.Topic).Duplicates)
	})
}

// G2: updates without updateDescription and images use their key, in order; looked-up documents do
// not number them.
func TestG2UpdatesOfADeploymentWithoutImagesUseTheirKey(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		a := startCounting(w, "a", plainly)
		w.InsertDocument(bson.D{{Key: "_id", Value: "u"}, {Key: "aggregateId", Value: "other"}, {Key: "version", Value: 1}})
		for range 20 {
			_, err := w.Events.UpdateByID(w.Context(), "u", bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}}}})
			require.NoError(t, err)
		}
		w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 22 })
		a.End()
		judgeNumbers(w)
		positionsGrow(w)
		updates := 0
		for _, accepted := range w.Took() {
			if accepted.Properties["operation"] == "update" {
				updates++
				require.Equal(t, "u", accepted.SessionID)
				require.NotContains(t, accepted.Properties, envelope.PropVersion)
			}
		}
		require.Equal(t, 20, updates)
	})
}

// G1, G2, G3 and G4: the leader vanishes repeatedly while it publishes; its successor continues the
// same count.
func TestG1G2G3G4CountedPositionsSurviveEveryInterruption(t *testing.T) {
	for seed := range uint64(8) {
		subtest(t, fmt.Sprint("seed ", seed), documentDB, func(w *world.World) {
			random := rand.New(rand.NewPCG(seed, 5))
			settings := plainlyWith(`[{"$match": {"operationType": "insert"}}]`)
			producers := []*world.Producer{startCounting(w, "a", settings), w.StartProducer("b", settings)}
			interrupted(w, random, producers, func(int) {
				w.InsertMany(1+random.IntN(120), 7)
				if random.IntN(3) == 0 {
					removeSome(w) // the filter skips it
				}
			})
			w.Published()
			judgeNumbers(w)
		})
	}
}

// removeSome deletes a document; no filter here passes that change.
func removeSome(w *world.World) {
	w.Helper()
	_, err := w.Events.DeleteOne(w.Context(), bson.D{{Key: "aggregateId", Value: "a1"}})
	require.NoError(w, err)
}

func TestG1CountedPositionsGoOnAfterTheCollectionIsDropped(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		a := startCounting(w, "a", plainly)
		w.InsertMany(20, 2)
		w.Published()
		require.NoError(t, w.Events.Drop(w.Context()))
		w.InsertMany(20, 2)
		w.Published()
		a.End()
		b := w.StartProducer("b", plainly)
		w.InsertMany(20, 2)
		w.Published()
		b.End()
		judgeNumbers(w)
	})
}

// G3 and G6: a changed filter counts differently. It is refused until an operator accepts it, and
// then positions begin a series that is larger than all before.
func TestG3G6AChangedFilterIsRefusedUntilItIsAccepted(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		inserts := plainlyWith(`[{"$match": {"operationType": "insert"}}]`)
		a := startCounting(w, "a", plainly)
		w.InsertMany(20, 2)
		removeSome(w)
		w.Eventually("all of it is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == w.Total()+1 })
		a.End()
		before := w.Checkpoint().Position

		err := w.StartProducer("b", inserts).Failed()
		require.ErrorContains(t, err, "PIPELINE, the collection")
		require.ErrorContains(t, err, "producer token renumber")
		require.Equal(t, before, w.Checkpoint().Position, "nothing is changed")

		operateWith(w, inserts, "doctor").reports(1, `PROBLEM +reading settings`)
		operateWith(w, inserts, "token", "renumber").succeeds()
		require.Greater(t, w.Checkpoint().Position, before)
		require.Regexp(t, `ok +reading settings`, operateWith(w, inserts, "doctor").Out)

		c := w.StartProducer("c", inserts)
		w.InsertMany(20, 2)
		removeSome(w)
		w.Eventually("the new ones are published", func() bool { return w.Bus.Stats(world.Topic).Accepted == w.Total()+1 })
		c.End()
		judgeNumbers(w)
		require.Zero(t, w.Bus.Stats(world.Topic).Duplicates)
		positionsGrow(w)
	})
}

// G6: a filter on documents that are looked up may count differently the second time.
func TestG6AnUnstableFilterIsRefusedWherePositionsAreCounted(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		a := w.StartProducer("a", unstably)
		w.Eventually("a reads", func() bool { return streamIsOpen(w) })
		w.Insert("x")
		require.ErrorContains(t, a.Failed(), "set FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE to default and off")
	})
}

// G3 and G6: if history is lost and the policy continues, a new series begins, larger than all
// positions before.
func TestG3G6CountedPositionsGrowBehindLostHistory(t *testing.T) {
	few := documentDB
	few.Mongo.OplogEntries = 100
	world.InVirtualTime(t, few, func(w *world.World) {
		a := startCounting(w, "a", plainly)
		w.InsertMany(10, 2)
		w.Published()
		a.End()
		before := w.Checkpoint().Position
		w.InsertMany(500, 2)

		b := w.StartProducer("b", plainly)
		require.ErrorContains(t, b.Failed(), "changes in between may be lost (ON_HISTORY_LOST=fail). To continue from now without them: ON_HISTORY_LOST=latest: ")
		c := w.StartProducer("c", func(c *producer.Config, o *producer.Options) { plainly(c, o); c.OnHistoryLost = "latest" })
		w.Eventually("c reads", func() bool { return streamIsOpen(w) })
		w.Pass(time.Second)
		w.Insert("first")
		w.Eventually("the new event is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 12 })
		c.End()
		require.Greater(t, w.Checkpoint().Position, before)
		require.Equal(t, "n0000000003.000000000000000001", w.Checkpoint().Position, "the third epoch's series")
	})
}

// What an operator may do if positions are counted: inspect, deliberately continue at another
// position, and nothing that would apply changes twice unexpectedly.
func TestG6CommandsWherePositionsAreCounted(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		a := startCounting(w, "a", plainly)
		w.InsertMany(10, 2)
		w.Published()
		middle := w.Checkpoint().Token["_data"].(string)
		a.End()
		b := w.StartProducer("b", plainly)
		w.InsertMany(10, 2)
		w.Published()
		b.End()
		before := w.Checkpoint()

		operateWith(w, plainly, "status").reports(1, // there is no leader
			before.Position+` \(counted: the resume tokens cannot be sorted\)`,
			"unknown: the deployment reports no times of its changes",
		)
		operateWith(w, plainly, "doctor").reports(0,
			`ok +tokens +none before the first event`,
			`ok +large events +the deployment does not split them`,
			`ok +reading settings +positions are counted`,
			`ok +history +the stream can continue`,
		)
		operateWith(w, unstably, "doctor").reports(1, `PROBLEM +reading settings +positions are counted, and a .match of PIPELINE reads documents`)

		operateWith(w, plainly, "token", "rewind", "--to", "2000-01-01T00:00:00Z").fails("read models apply it twice")
		operateWith(w, plainly, "token", "set", middle).fails("--forward")
		require.Contains(t, operateWith(w, plainly, "token", "renumber").Out, "nothing to do")
		require.Equal(t, before, w.Checkpoint(), "refusals change nothing")

		operateWith(w, plainly, "token", "set", "--forward", middle).succeeds("Positions begin a new series")
		require.Equal(t, "n0000000003.000000000000000000", w.Checkpoint().Position)
		c := w.StartProducer("c", plainly)
		w.Eventually("the changes since come again", func() bool { return w.Bus.Stats(world.Topic).Duplicates >= 10 })
		w.InsertMany(10, 2)
		w.Published()
		c.End()
		require.Greater(t, w.Checkpoint().Position, "n0000000003.000000000000000000", "the operator's series goes on")
		require.Greater(t, w.Checkpoint().Position, before.Position)
	})
}

// A deployment that returns empty responses at once is not asked as fast as it answers.
func TestADeploymentThatDoesNotWaitIsPolledSlowly(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		var requests atomic.Int64
		a := startCounting(w, "a", func(c *producer.Config, o *producer.Options) {
			plainly(c, o)
			onGetMore(o, func(bson.Raw) { requests.Add(1) })
		})
		before := requests.Load()
		w.Pass(time.Minute)
		require.Less(t, requests.Load()-before, int64(1500))
		a.End()
	})
}
