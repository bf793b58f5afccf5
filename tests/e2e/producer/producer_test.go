// Package producer_test tests the promises of the producer and of its operator's commands, in
// virtual time: what reaches the topic, in which order and how many times, and which replica may
// lead. tests/e2e/pipeline tests the resulting read model.
package producer_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func TestProducerPublishesInOrderAndCheckpoints(t *testing.T) {
	for _, scope := range []string{"session", "mixed", "auto"} {
		subtest(t, scope, world.Options{}, func(w *world.World) {
			startAndPublish(w, "a", func(c *producer.Config, _ *producer.Options) { c.BatchScope = scope }, 2000, 17).End()
			require.EqualValues(w, 2000, w.Checkpoint().Published)
			require.Zero(w, w.Bus.Stats(world.Topic).Duplicates)
		})
	}
}

// G1 and G4: the leader vanishes while it publishes; the next one continues from the checkpoint.
// What the first one had sent after its last checkpoint is sent again with the same message ids.
func TestG1G4ProducerTakesOverFromAVanishedLeader(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
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
		require.Equal(t, "b", w.Checkpoint().Leader, "a replica that returns stands by")
		a.End()
		b.End()
		judgeEpochs(w)
	})
}

// G4: a leader that is cut off only from storage could still send; it stops on its own before
// another replica may lead.
func TestG4ProducerCutOffFromStorageStopsSending(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
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
		a := startLeader(w, "a", nil)
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
		a := startLeader(w, "a", nil)
		a.Vanish()
		w.InsertMany(50, 3)
		b := startLeader(w, "b", nil)
		w.Published()
		a.End()
		b.End()
	})
}

// G1: a leader that stops right behind the invalidate leaves a token that works with startAfter
// only.
func TestG1ProducerResumesBehindAnInvalidate(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		startAndPublish(w, "a", nil, 20, 2).End()
		require.NoError(t, w.Events.Drop(w.Context()))
		w.InsertMany(20, 2)
		b := w.StartProducer("b", nil)
		w.Published()
		b.End()
	})
}

// G6: lost history stops the stream with an error that reports it; only the policy "latest"
// continues, and logs it.
func TestG6LostHistoryIsNeverSkippedSilently(t *testing.T) {
	lose := func(w *world.World) {
		ran(w)
		w.InsertMany(500, 2) // no producer reads, and the oplog holds a hundred entries
	}
	subtest(t, "fail", world.Options{Mongo: mongo.Options{OplogEntries: 100}}, func(w *world.World) {
		lose(w)
		require.ErrorContains(w, w.StartProducer("b", nil).Failed(), "changes in between may be lost (ON_HISTORY_LOST=fail)")
		require.EqualValues(w, 10, w.Checkpoint().Published, "the checkpoint is kept")
	})
	subtest(t, "latest", world.Options{Mongo: mongo.Options{OplogEntries: 100}}, func(w *world.World) {
		lose(w)
		b := startLeader(w, "b", func(c *producer.Config, _ *producer.Options) { c.OnHistoryLost = "latest" })
		w.Eventually("the loss is logged", func() bool { return strings.Contains(b.Log.Text(), "history is lost; resuming from now") })
		w.Pass(2 * time.Second)
		w.Insert("after")
		w.Eventually("the new event is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 11 })
		b.End()
	})
}

// G6: an event that Service Bus can never accept stops the stream; what comes before it is
// published.
func TestG6AnOversizedEventStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startAndPublish(w, "a", nil, 10, 2)
		w.InsertDocument(bson.D{{Key: "aggregateId", Value: "huge"}, {Key: "pad", Value: string(make([]byte, 300<<10))}})
		err := a.Failed()
		require.ErrorContains(t, err, `too large for Service Bus`)
		require.ErrorContains(t, err, `"huge"`)
		require.ErrorContains(t, err, "ON_OVERSIZE=claimcheck", "the remedy")
		require.EqualValues(t, 10, w.Checkpoint().Published, "the checkpoint stays before it")
	})
}

// Replicas of a new stream start at the same time. If one found no checkpoint before another
// created it and led, it does not treat the checkpoint as deleted.
func TestG4ALateReadOfANewStreamIsNoDeletion(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		held, goOn := make(chan struct{}), make(chan struct{})
		var first sync.Once
		b := w.StartProducer("b", throughStorage(func(r *http.Request, next policy.Transporter) (*http.Response, error) {
			response, err := next.Do(r)
			if err == nil && response.StatusCode == http.StatusNotFound {
				first.Do(func() {
					close(held)
					<-goOn
				})
			}
			return response, err
		}))
		<-held
		a := startAndPublish(w, "a", nil, 5, 2)
		close(goOn)
		w.Pass(3 * time.Second)
		a.End()
		w.Leads("b")
		w.InsertMany(5, 2)
		w.Published()
		b.End()
	})
}
