package e2e

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
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func TestProducerPublishesInOrderAndCheckpoints(t *testing.T) {
	for _, scope := range []string{"session", "mixed"} {
		t.Run(scope, func(t *testing.T) {
			inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
				p := w.start("a", func(c *producer.Config, _ *producer.Options) { c.BatchScope = scope })
				w.leads("a")
				w.insertMany(2000, 17)
				w.published()
				p.end()
				require.EqualValues(t, 2000, w.checkpoint().Published)
				require.Zero(t, w.bus.Stats(topic).Duplicates)
			})
		})
	}
}

// G1 and G4: the leader vanishes in the middle of publishing; the next one goes on from the checkpoint. What the first
// had sent after its last checkpoint comes again under the same message ids.
func TestG1G4ProducerTakesOverFromAVanishedLeader(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		b := w.start("b", nil)
		w.insertMany(300, 5)
		w.eventually("some of it is published", func() bool { return w.bus.Stats(topic).Accepted > 100 })
		a.vanish()
		gone := time.Now()
		w.insertMany(300, 5)
		w.leads("b")
		require.LessOrEqual(t, time.Since(gone), 8*time.Second)
		w.published()
		require.EqualValues(t, 2, w.checkpoint().Epoch)

		a.comeBack()
		w.insertMany(100, 5)
		w.published()
		require.Equal(t, "b", w.checkpoint().Leader, "who comes back stands by")
		a.end()
		b.end()
		w.judgeEpochs()
	})
}

// judgeEpochs: once a newer leader has published, nothing of an older one arrives.
func (w *producerWorld) judgeEpochs() {
	w.Helper()
	var highest int64
	for _, a := range w.took() {
		epoch := a.Properties[envelope.PropEpoch].(int64)
		require.GreaterOrEqual(w, epoch, highest)
		highest = max(highest, epoch)
	}
}

// G4: a leader cut off from storage alone could still send; it stops by itself before anybody else may begin.
func TestG4ProducerCutOffFromStorageStopsSending(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		a.blobPlug.pull()
		cut := time.Now()
		for time.Since(cut) < 20*time.Second {
			w.insert("x")
			w.pause(50 * time.Millisecond)
		}
		for _, accepted := range w.took() {
			require.LessOrEqual(t, accepted.EnqueuedAt.Sub(cut), 4*time.Second, "sent past the fence")
		}
		require.NotEmpty(t, w.took(), "until the fence it had every right to send")
		a.blobPlug.plugIn()
		w.published()
		require.EqualValues(t, 2, w.checkpoint().Epoch, "the same instance, a new term")
		a.end()
	})
}

// pause lets virtual time pass between two actions.
func (w *producerWorld) pause(d time.Duration) {
	w.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

func TestProducerHandsOverWhenStopped(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		b := w.start("b", nil)
		w.pause(3 * time.Second)
		w.insertMany(500, 9)
		stopped := time.Now()
		a.end()
		w.leads("b")
		require.LessOrEqual(t, time.Since(stopped), 1500*time.Millisecond)
		w.insertMany(500, 9)
		w.published()
		require.Zero(t, w.bus.Stats(topic).Duplicates, "what was handed over is not published again")
		b.end()
	})
}

// G1: a first leader that dies before its first acknowledgement must not make its successor begin at a later "now".
func TestG1ANewStreamsBeginningIsNotForgotten(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		a.vanish()
		w.insertMany(50, 3)
		b := w.start("b", nil)
		w.leads("b")
		w.published()
		a.end()
		b.end()
	})
}

// interrupt does one harm of all there are, to a server or to this producer; or brings the producer back.
func (w *producerWorld) interrupt(random *rand.Rand, p *runningProducer) {
	w.Helper()
	switch random.IntN(9) {
	case 0:
		w.bus.DropConnections()
	case 1:
		w.dropMongo()
	case 2:
		w.mongo.KillCursors()
	case 3:
		w.mongo.StepDown(time.Duration(random.IntN(3000)) * time.Millisecond)
		w.eventually("MongoDB is primary again", func() bool { return w.events.FindOne(w.Context(), bson.D{}).Err() == nil })
	case 4:
		w.blob.Fail(503, time.Duration(random.IntN(8000))*time.Millisecond)
	case 5:
		w.bus.LoseAcknowledgements(1 + random.IntN(3))
	case 6:
		require.NoError(w, w.bus.RefuseSends(topic, 1+random.IntN(4)))
	case 7:
		p.vanish()
	case 8:
		p.comeBack()
	}
}

func TestProducerSurvivesEveryInterruption(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
				random := rand.New(rand.NewPCG(seed, 4))
				producers := []*runningProducer{w.start("a", nil), w.start("b", nil)}
				w.eventually("somebody leads", func() bool { return w.checkpoint().Token != nil })
				for range 25 {
					w.insertMany(1+random.IntN(120), 7)
					w.pause(time.Duration(random.IntN(1500)) * time.Millisecond)
					w.interrupt(random, producers[random.IntN(2)])
				}
				for _, p := range producers {
					p.comeBack()
				}
				w.published()
				w.eventually("the checkpoint covers everything", func() bool { return w.checkpoint().Published == int64(w.total()) })
				for _, p := range producers {
					p.end()
				}
				w.judgeEpochs()
			})
		})
	}
}

func TestProducerGoesOnAfterTheCollectionIsDropped(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		w.insertMany(20, 2)
		w.published()
		require.NoError(t, w.events.Drop(w.Context()))
		w.insertMany(20, 2)
		w.published()
		require.Contains(t, a.log.text(), "dropped or renamed")
		a.end()

		b := w.start("b", nil) // resumes from a checkpoint behind the invalidate
		w.insertMany(20, 2)
		w.published()
		b.end()
	})
}

// G1: a leader that stops right behind the invalidate leaves a token that only startAfter may use.
func TestG1ProducerResumesBehindAnInvalidate(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		w.insertMany(20, 2)
		w.published()
		a.end()
		require.NoError(t, w.events.Drop(w.Context()))
		w.insertMany(20, 2)
		b := w.start("b", nil)
		w.published()
		b.end()
	})
}

// An idle collection's checkpoint moves on with the rest of the database, so that the oplog cannot outrun it.
func TestProducerOfAnIdleCollectionMovesItsCheckpoint(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		before := w.checkpoint().Position
		other := w.events.Database().Collection("other")
		for range 5 {
			_, err := other.InsertOne(w.Context(), bson.D{{Key: "x", Value: 1}})
			require.NoError(t, err)
			w.pause(time.Second)
		}
		w.eventually("the checkpoint moves", func() bool { return w.checkpoint().Position > before })
		require.Empty(t, w.took())
		a.end()
	})
}

// G6: history that is lost stops the stream with an error that says so; only the policy "latest" goes on, and says so.
func TestG6LostHistoryIsNeverPassedOverSilently(t *testing.T) {
	lose := func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		w.insertMany(10, 2)
		w.published()
		a.end()
		w.insertMany(500, 2) // nobody reads, and the oplog holds a hundred entries
	}
	t.Run("fail", func(t *testing.T) {
		inProducerWorld(t, mongo.Options{OplogEntries: 100}, func(w *producerWorld) {
			lose(w)
			b := w.start("b", nil)
			err := <-b.done
			require.ErrorContains(t, err, "changes in between may be lost (ON_HISTORY_LOST=fail)")
			require.EqualValues(t, 10, w.checkpoint().Published, "the checkpoint is kept")
		})
	})
	t.Run("latest", func(t *testing.T) {
		inProducerWorld(t, mongo.Options{OplogEntries: 100}, func(w *producerWorld) {
			lose(w)
			b := w.start("b", func(c *producer.Config, _ *producer.Options) { c.OnHistoryLost = "latest" })
			w.leads("b")
			w.eventually("the loss is logged", func() bool { return strings.Contains(b.log.text(), "history is lost; resuming from now") })
			w.pause(2 * time.Second)
			w.insert("after")
			w.eventually("the new event is published", func() bool { return w.bus.Stats(topic).Accepted == 11 })
			b.end()
		})
	})
}

// G6: an event that Service Bus can never take stops the stream; what comes before it is published.
func TestG6AnOversizedEventStopsTheStream(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		w.insertMany(10, 2)
		w.published()
		w.insertDocument(bson.D{{Key: "aggregateId", Value: "huge"}, {Key: "pad", Value: string(make([]byte, 300<<10))}})
		err := <-a.done
		require.ErrorContains(t, err, `too large for Service Bus`)
		require.ErrorContains(t, err, `"huge"`)
		require.ErrorContains(t, err, "ON_OVERSIZE=claimcheck", "how to mend it")
		require.EqualValues(t, 10, w.checkpoint().Published, "the checkpoint stays before it")
	})
}

func TestProducerMapsUpdatesAndDeletesToTheirAggregate(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		require.NoError(t, w.events.Database().CreateCollection(w.Context(), "events",
			options.CreateCollection().SetChangeStreamPreAndPostImages(bson.D{{Key: "enabled", Value: true}})))
		a := w.start("a", nil)
		w.leads("a")
		key := bson.D{{Key: "_id", Value: 1}}
		w.insertDocument(bson.D{{Key: "_id", Value: 1}, {Key: "aggregateId", Value: "x"}, {Key: "n", Value: 1}})
		_, err := w.events.UpdateOne(w.Context(), key, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 2}}}})
		require.NoError(t, err)
		_, err = w.events.ReplaceOne(w.Context(), key, bson.D{{Key: "aggregateId", Value: "x"}, {Key: "n", Value: 3}})
		require.NoError(t, err)
		w.eventually("three are published", func() bool { return len(w.took()) == 3 })
		_, err = w.events.DeleteOne(w.Context(), key)
		require.NoError(t, err)
		w.eventually("all are published", func() bool { return len(w.took()) == 4 })
		for i, operation := range []string{"insert", "update", "replace", "delete"} {
			require.Equal(t, "x", w.took()[i].SessionID, operation)
			require.Equal(t, operation, w.took()[i].Properties["operation"])
		}
		a.end()
	})
}

// slowReader keeps the first answer that says that something is not there until it is told to go on.
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

// Replicas of a new stream begin at the same time. One that saw no checkpoint before another made it and led does not take it
// for one that was deleted.
func TestG4ALateLookAtANewStreamIsNoDeletion(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		slow := &slowReader{held: make(chan struct{}), goOn: make(chan struct{})}
		b := w.start("b", func(_ *producer.Config, o *producer.Options) {
			slow.next = o.Blob.Transport
			o.Blob.Transport = slow
		})
		<-slow.held
		a := w.start("a", nil)
		w.leads("a")
		w.insertMany(5, 2)
		w.published()
		close(slow.goOn)
		w.pause(3 * time.Second)
		a.end()
		w.leads("b")
		w.insertMany(5, 2)
		w.published()
		b.end()
	})
}
