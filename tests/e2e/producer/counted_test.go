package producer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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

func plainlyWith(pipeline string) func(*producer.Config, *producer.Options) {
	return func(c *producer.Config, o *producer.Options) {
		plainly(c, o)
		c.Pipeline = pipeline
	}
}

// startCounting runs the first leader of a stream and lets it publish one event: there is no token
// before that.
func startCounting(w *world.World, instance string, change func(*producer.Config, *producer.Options)) *world.Producer {
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
		highest, updates := "", 0
		for _, accepted := range w.Took() {
			if accepted.Properties["operation"] != "update" {
				continue
			}
			updates++
			require.Equal(t, "u", accepted.SessionID)
			require.NotContains(t, accepted.Properties, envelope.PropVersion)
			position := accepted.Properties[envelope.PropPosition].(string)
			require.Greater(t, position, highest)
			highest = position
		}
		require.Equal(t, 20, updates)
	})
}

// G1, G2, G3 and G4: the leader vanishes repeatedly while it publishes; its successor continues the
// same count.
func TestG1G2G3G4CountedPositionsSurviveEveryInterruption(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			world.InVirtualTime(t, documentDB, func(w *world.World) {
				random := rand.New(rand.NewPCG(seed, 5))
				settings := plainlyWith(`[{"$match": {"operationType": "insert"}}]`)
				producers := []*world.Producer{startCounting(w, "a", settings), w.StartProducer("b", settings)}
				for range 20 {
					w.InsertMany(1+random.IntN(120), 7)
					if random.IntN(3) == 0 {
						removeSome(w) // the filter skips it
					}
					w.Pass(time.Duration(random.IntN(1500)) * time.Millisecond)
					interrupt(w, random, producers[random.IntN(2)])
				}
				for _, p := range producers {
					p.ComeBack()
				}
				w.Published()
				judgeNumbers(w)
				w.Eventually("the checkpoint covers everything", func() bool { return w.Checkpoint().Published == int64(w.Total()) })
				for _, p := range producers {
					p.End()
				}
				judgeEpochs(w)
			})
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
		everything := plainly
		inserts := plainlyWith(`[{"$match": {"operationType": "insert"}}]`)
		onlyInserts := func(c *producer.Config) { inserts(c, nil) }
		a := startCounting(w, "a", everything)
		w.InsertMany(20, 2)
		removeSome(w)
		w.Eventually("all of it is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == w.Total()+1 })
		a.End()
		before := w.Checkpoint().Position

		b := w.StartProducer("b", inserts)
		err := b.Failed()
		require.ErrorContains(t, err, "PIPELINE, the collection")
		require.ErrorContains(t, err, "producer token renumber")
		require.Equal(t, before, w.Checkpoint().Position, "nothing is changed")

		doctor := operateWith(w, onlyInserts, "doctor")
		require.Regexp(t, `PROBLEM +reading settings`, doctor.Out)
		done := operateWith(w, onlyInserts, "token", "renumber")
		require.Equal(t, 0, done.Code, done.Err)
		require.Greater(t, w.Checkpoint().Position, before)
		require.Regexp(t, `ok +reading settings`, operateWith(w, onlyInserts, "doctor").Out)

		c := w.StartProducer("c", inserts)
		w.InsertMany(20, 2)
		removeSome(w)
		w.Eventually("the new ones are published", func() bool { return w.Bus.Stats(world.Topic).Accepted == w.Total()+1 })
		c.End()
		judgeNumbers(w)
		highest := map[string]string{}
		for _, accepted := range w.Took() {
			require.False(t, accepted.Duplicate)
			position := accepted.Properties[envelope.PropPosition].(string)
			require.Greater(t, position, highest[accepted.SessionID])
			highest[accepted.SessionID] = position
		}
	})
}

// G6: a filter on documents that are looked up may count differently the second time.
func TestG6AnUnstableFilterIsRefusedWherePositionsAreCounted(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) {
			c.BeforeChange = "off"
			c.Pipeline = `[{"$match": {"fullDocument.type": "Counted"}}]`
		})
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
func TestG6OperatorWherePositionsAreCounted(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		plain := func(c *producer.Config) { plainly(c, nil) }
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

		status := operateWith(w, plain, "status")
		require.Equal(t, 1, status.Code, "there is no leader")
		require.Contains(t, status.Out, before.Position+" (counted: the resume tokens cannot be sorted)")
		require.Contains(t, status.Out, "unknown: the deployment reports no times of its changes")
		doctor := operateWith(w, plain, "doctor")
		require.Equal(t, 0, doctor.Code, doctor.Out)
		require.Regexp(t, `ok +tokens +none before the first event`, doctor.Out)
		require.Regexp(t, `ok +large events +the deployment does not split them`, doctor.Out)
		require.Regexp(t, `ok +reading settings +positions are counted`, doctor.Out)
		require.Regexp(t, `ok +history +the stream can continue`, doctor.Out)
		unstable := operateWith(w, func(c *producer.Config) {
			c.BeforeChange, c.Pipeline = "off", `[{"$match": {"fullDocument.type": "Counted"}}]`
		}, "doctor")
		require.Regexp(t, `PROBLEM +reading settings +positions are counted, and a .match of PIPELINE reads documents`, unstable.Out)

		rewind := operateWith(w, plain, "token", "rewind", "--to", "2000-01-01T00:00:00Z")
		require.Equal(t, 1, rewind.Code)
		require.Contains(t, rewind.Err, "read models apply it twice")
		set := operateWith(w, plain, "token", "set", middle)
		require.Equal(t, 1, set.Code)
		require.Contains(t, set.Err, "--forward")
		require.Contains(t, operateWith(w, plain, "token", "renumber").Out, "nothing to do")
		require.Equal(t, before, w.Checkpoint(), "refusals change nothing")

		set = operateWith(w, plain, "token", "set", "--forward", middle)
		require.Equal(t, 0, set.Code, set.Err)
		require.Contains(t, set.Out, "Positions begin a new series")
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
func TestADeploymentThatDoesNotWaitIsSparedRequests(t *testing.T) {
	world.InVirtualTime(t, documentDB, func(w *world.World) {
		var requests atomic.Int64
		a := startCounting(w, "a", func(c *producer.Config, o *producer.Options) {
			plainly(c, o)
			dial := o.Mongo
			o.Mongo = func(c *options.ClientOptions) {
				dial(c)
				c.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
					if e.CommandName == "getMore" {
						requests.Add(1)
					}
				}})
			}
		})
		before := requests.Load()
		w.Pass(time.Minute)
		require.Less(t, requests.Load()-before, int64(1500))
		a.End()
	})
}
