// Package producer_test tests the promises of the producer and of its operator's commands, in
// virtual time: what reaches the topic, in which order and how many times, and which replica may
// lead. tests/e2e/pipeline tests the resulting read model.
package producer_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func TestProducerPublishesInOrderAndCheckpoints(t *testing.T) {
	for _, scope := range []string{"session", "mixed", "auto"} {
		t.Run(scope, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				p := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.BatchScope = scope })
				w.Leads("a")
				w.InsertMany(2000, 17)
				w.Published()
				p.End()
				require.EqualValues(t, 2000, w.Checkpoint().Published)
				require.Zero(t, w.Bus.Stats(world.Topic).Duplicates)
			})
		})
	}
}

// G1 and G4: the leader vanishes while it publishes; the next one continues from the checkpoint.
// What the first one had sent after its last checkpoint is sent again with the same message ids.
func TestG1G4ProducerTakesOverFromAVanishedLeader(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		b := w.StartProducer("b", nil)
		w.InsertMany(300, 5)
		w.Eventually("some of it is published", func() bool { return w.Bus.Stats(world.Topic).Accepted > 100 })
		a.Vanish()
		gone := time.Now()
		w.InsertMany(300, 5)
		w.Leads("b")
		require.LessOrEqual(t, time.Since(gone), 8*time.Second)
		w.Published()
		require.EqualValues(t, 2, w.Checkpoint().Epoch)

		a.ComeBack()
		w.InsertMany(100, 5)
		w.Published()
		require.Equal(t, "b", w.Checkpoint().Leader, "who comes back stands by")
		a.End()
		b.End()
		judgeEpochs(w)
	})
}

// judgeEpochs requires that nothing of an older leader arrives once a newer one has published.
func judgeEpochs(w *world.World) {
	w.Helper()
	var highest int64
	for _, a := range w.Took() {
		epoch := a.Properties[envelope.PropEpoch].(int64)
		require.GreaterOrEqual(w, epoch, highest)
		highest = max(highest, epoch)
	}
}

// G4: a leader that is cut off only from storage could still send; it stops on its own before
// another replica may lead.
func TestG4ProducerCutOffFromStorageStopsSending(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		a.BlobPlug.Pull()
		cut := time.Now()
		for time.Since(cut) < 20*time.Second {
			w.Insert("x")
			w.Pass(50 * time.Millisecond)
		}
		for _, accepted := range w.Took() {
			require.LessOrEqual(t, accepted.EnqueuedAt.Sub(cut), 2500*time.Millisecond, "sent past the fence")
		}
		require.NotEmpty(t, w.Took(), "until the fence it had every right to send")
		a.BlobPlug.PlugIn()
		w.Published()
		require.EqualValues(t, 2, w.Checkpoint().Epoch, "the same instance, a new term")
		a.End()
	})
}

func TestProducerHandsOverWhenStopped(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		b := w.StartProducer("b", nil)
		w.Pass(3 * time.Second)
		w.InsertMany(500, 9)
		stopped := time.Now()
		a.End()
		w.Leads("b")
		require.LessOrEqual(t, time.Since(stopped), 1500*time.Millisecond)
		w.InsertMany(500, 9)
		w.Published()
		require.Zero(t, w.Bus.Stats(world.Topic).Duplicates, "what was handed over is not published again")
		b.End()
	})
}

// G1: a first leader that dies before its first acknowledgement must not make its successor begin
// at a later time.
func TestG1ANewStreamsBeginningIsNotForgotten(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		a.Vanish()
		w.InsertMany(50, 3)
		b := w.StartProducer("b", nil)
		w.Leads("b")
		w.Published()
		a.End()
		b.End()
	})
}

// interrupt does one random harm to a server or to this producer, or brings the producer back.
func interrupt(w *world.World, random *rand.Rand, p *world.Producer) {
	w.Helper()
	switch random.IntN(9) {
	case 0:
		w.Bus.DropConnections()
	case 1:
		w.DropMongo()
	case 2:
		w.Mongo.KillCursors()
	case 3:
		w.Mongo.StepDown(time.Duration(random.IntN(3000)) * time.Millisecond)
		w.Eventually("MongoDB is primary again", func() bool { return w.Events.FindOne(w.Context(), bson.D{}).Err() == nil })
	case 4:
		w.Blob.Fail(503, time.Duration(random.IntN(8000))*time.Millisecond)
	case 5:
		w.Bus.LoseAcknowledgements(1 + random.IntN(3))
	case 6:
		require.NoError(w, w.Bus.RefuseSends(world.Topic, 1+random.IntN(4)))
	case 7:
		p.Vanish()
	case 8:
		p.ComeBack()
	}
}

func TestProducerSurvivesEveryInterruption(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				random := rand.New(rand.NewPCG(seed, 4))
				producers := []*world.Producer{w.StartProducer("a", nil), w.StartProducer("b", nil)}
				w.Eventually("a producer leads", func() bool { return w.Checkpoint().Token != nil })
				for range 25 {
					w.InsertMany(1+random.IntN(120), 7)
					w.Pass(time.Duration(random.IntN(1500)) * time.Millisecond)
					interrupt(w, random, producers[random.IntN(2)])
				}
				for _, p := range producers {
					p.ComeBack()
				}
				w.Published()
				w.Eventually("the checkpoint covers everything", func() bool { return w.Checkpoint().Published == int64(w.Total()) })
				for _, p := range producers {
					p.End()
				}
				judgeEpochs(w)
			})
		})
	}
}

func TestProducerGoesOnAfterTheCollectionIsDropped(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(20, 2)
		w.Published()
		require.NoError(t, w.Events.Drop(w.Context()))
		w.InsertMany(20, 2)
		w.Published()
		require.Contains(t, a.Log.Text(), "dropped or renamed")
		a.End()

		b := w.StartProducer("b", nil) // resumes from a checkpoint behind the invalidate
		w.InsertMany(20, 2)
		w.Published()
		b.End()
	})
}

// G1: a leader that stops right behind the invalidate leaves a token that works with startAfter
// only.
func TestG1ProducerResumesBehindAnInvalidate(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(20, 2)
		w.Published()
		a.End()
		require.NoError(t, w.Events.Drop(w.Context()))
		w.InsertMany(20, 2)
		b := w.StartProducer("b", nil)
		w.Published()
		b.End()
	})
}

// An idle collection's checkpoint moves with the rest of the database, so that the oplog cannot
// outrun it.
func TestProducerOfAnIdleCollectionMovesItsCheckpoint(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		before := w.Checkpoint().Position
		other := w.Events.Database().Collection("other")
		for range 5 {
			_, err := other.InsertOne(w.Context(), bson.D{{Key: "x", Value: 1}})
			require.NoError(t, err)
			w.Pass(time.Second)
		}
		w.Eventually("the checkpoint moves", func() bool { return w.Checkpoint().Position > before })
		require.Empty(t, w.Took())
		a.End()
	})
}

// G6: lost history stops the stream with an error that reports it; only the policy "latest"
// continues, and logs it.
func TestG6LostHistoryIsNeverSkippedSilently(t *testing.T) {
	lose := func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(10, 2)
		w.Published()
		a.End()
		w.InsertMany(500, 2) // no producer reads, and the oplog holds a hundred entries
	}
	t.Run("fail", func(t *testing.T) {
		world.InVirtualTime(t, world.Options{Mongo: mongo.Options{OplogEntries: 100}}, func(w *world.World) {
			lose(w)
			b := w.StartProducer("b", nil)
			err := <-b.Done
			require.ErrorContains(t, err, "changes in between may be lost (ON_HISTORY_LOST=fail)")
			require.EqualValues(t, 10, w.Checkpoint().Published, "the checkpoint is kept")
		})
	})
	t.Run("latest", func(t *testing.T) {
		world.InVirtualTime(t, world.Options{Mongo: mongo.Options{OplogEntries: 100}}, func(w *world.World) {
			lose(w)
			b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { c.OnHistoryLost = "latest" })
			w.Leads("b")
			w.Eventually("the loss is logged", func() bool { return strings.Contains(b.Log.Text(), "history is lost; resuming from now") })
			w.Pass(2 * time.Second)
			w.Insert("after")
			w.Eventually("the new event is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 11 })
			b.End()
		})
	})
}

// G6: an event that Service Bus can never accept stops the stream; what comes before it is
// published.
func TestG6AnOversizedEventStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(10, 2)
		w.Published()
		w.InsertDocument(bson.D{{Key: "aggregateId", Value: "huge"}, {Key: "pad", Value: string(make([]byte, 300<<10))}})
		err := <-a.Done
		require.ErrorContains(t, err, `too large for Service Bus`)
		require.ErrorContains(t, err, `"huge"`)
		require.ErrorContains(t, err, "ON_OVERSIZE=claimcheck", "the remedy")
		require.EqualValues(t, 10, w.Checkpoint().Published, "the checkpoint stays before it")
	})
}

func TestProducerMapsUpdatesAndDeletesToTheirAggregate(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images}, func(w *world.World) {
		w.KeepImages()
		a := w.StartProducer("a", world.AllOperations)
		w.Leads("a")
		key := bson.D{{Key: "_id", Value: 1}}
		w.InsertDocument(bson.D{{Key: "_id", Value: 1}, {Key: "aggregateId", Value: "x"}, {Key: "n", Value: 1}})
		_, err := w.Events.UpdateOne(w.Context(), key, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 2}}}})
		require.NoError(t, err)
		_, err = w.Events.ReplaceOne(w.Context(), key, bson.D{{Key: "aggregateId", Value: "x"}, {Key: "n", Value: 3}})
		require.NoError(t, err)
		w.Eventually("three are published", func() bool { return len(w.Took()) == 3 })
		_, err = w.Events.DeleteOne(w.Context(), key)
		require.NoError(t, err)
		w.Eventually("all are published", func() bool { return len(w.Took()) == 4 })
		for i, operation := range []string{"insert", "update", "replace", "delete"} {
			require.Equal(t, "x", w.Took()[i].SessionID, operation)
			require.Equal(t, operation, w.Took()[i].Properties["operation"])
		}
		a.End()
	})
}

// slowReader holds back the first "not found" answer until it is released.
type slowReader struct {
	next       policy.Transporter
	once       sync.Once
	held, goOn chan struct{}
}

func (s *slowReader) Do(r *http.Request) (*http.Response, error) {
	response, err := s.next.Do(r)
	if err == nil && response.StatusCode == http.StatusNotFound {
		s.once.Do(func() {
			close(s.held)
			<-s.goOn
		})
	}
	return response, err
}

// Replicas of a new stream start at the same time. If one found no checkpoint before another
// created it and led, it does not treat the checkpoint as deleted.
func TestG4ALateLookAtANewStreamIsNoDeletion(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		slow := &slowReader{held: make(chan struct{}), goOn: make(chan struct{})}
		b := w.StartProducer("b", func(_ *producer.Config, o *producer.Options) {
			slow.next = o.Blob.Transport
			o.Blob.Transport = slow
		})
		<-slow.held
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(5, 2)
		w.Published()
		close(slow.goOn)
		w.Pass(3 * time.Second)
		a.End()
		w.Leads("b")
		w.InsertMany(5, 2)
		w.Published()
		b.End()
	})
}
