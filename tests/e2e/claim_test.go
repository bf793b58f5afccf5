package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// storage is a projector's way to Blob storage, which can be closed.
type storage struct {
	next   policy.Transporter
	closed atomic.Bool
	asked  atomic.Int64
}

func (s *storage) Do(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	if s.closed.Load() {
		return nil, errors.New("storage is away")
	}
	return s.next.Do(r)
}

// project runs a projector beside the producers until the world ends; without storage it has no settings for it.
func (w *producerWorld) project(s *storage) (log *recorder, stop func()) {
	w.Helper()
	log = &recorder{}
	config := projector.Config{
		ServiceBus: azure.ServiceBus{ConnectionString: servicebus.ConnectionString("bus:5672")},
		Topic:      topic, Subscription: subscription, Connections: 1,
		MongoURI: mongo.URI("mongo:27017"), Database: readModel, Projection: "timeline",
		MaxSessions: 4, ReceiveBatch: 100, SessionIdle: 2 * time.Second, SessionMaxHold: 30 * time.Second,
		AcceptTimeout: time.Minute, ApplyTimeout: 10 * time.Second, SettleTimeout: 5 * time.Second, ShutdownTimeout: 20 * time.Second,
	}
	o := projector.Options{
		Logger: slog.New(slog.NewJSONHandler(log, nil)),
		ServiceBus: &azservicebus.ClientOptions{
			NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return w.busNet.DialContext(ctx, "", "")
			},
		},
		Mongo: func(o *options.ClientOptions) { o.SetDialer(w.mongoNet) },
	}
	if s != nil {
		config.Blob, config.ClaimContainer = azure.Blob{ConnectionString: blob.ConnectionString(blobHost)}, "claim-checks"
		s.next = w.blob.Transport()
		o.Blob = blobTransport(s)
	}
	require.NoError(w, config.Validate())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- projector.Run(ctx, config, o) }()
	return log, func() {
		cancel()
		require.NoError(w, <-done)
	}
}

// timelineOf is an aggregate's read model.
func (w *producerWorld) timelineOf(aggregate string) (doc timeline) {
	w.Helper()
	models := w.events.Database().Client().Database(readModel).Collection("timeline")
	if err := models.FindOne(w.Context(), bson.D{{Key: "_id", Value: aggregate}}).Decode(&doc); err != nil {
		require.ErrorIs(w, err, driver.ErrNoDocuments)
	}
	return doc
}

// grow commits five events of an aggregate, the third one of 2 MB, and three of another one.
func (w *producerWorld) grow() {
	w.Helper()
	for version := 1; version <= 5; version++ {
		document := bson.D{
			{Key: "aggregateId", Value: "x"},
			{Key: "version", Value: version},
			{Key: "type", Value: "Counted"},
			{Key: "occurredAt", Value: fmt.Sprintf("2026-01-01T00:00:%02dZ", version)},
		}
		if version == 3 {
			document[2].Value = "Grown"
			document = append(document, bson.E{Key: "pad", Value: strings.Repeat("x", 2<<20)})
		}
		w.insertDocument(document)
	}
	for range 3 {
		w.insert("y")
	}
}

func (w *producerWorld) claiming() *runningProducer {
	w.Helper()
	a := w.start("a", func(c *producer.Config, _ *producer.Options) { c.OnOversize = "claimcheck" })
	w.leads("a")
	return a
}

// G1, G2, G3: an event of 2 MB has its effect once, in its place, through both services, although acknowledgements of the broker
// are lost and the projector cannot reach storage for five minutes. The outage dead-letters nothing.
func TestG3ALargeEventHasItsEffectOnceAndInOrder(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.claiming()
		s := &storage{}
		s.closed.Store(true)
		_, stop := w.project(s)
		w.bus.LoseAcknowledgements(2)
		w.grow()
		w.eventually("the other aggregate is there", func() bool { return w.timelineOf("y").Events == 3 })
		w.pause(5 * time.Minute)
		require.Greater(t, s.asked.Load(), int64(10))
		require.EqualValues(t, 2, w.timelineOf("x").Events, "what comes before the large event")
		s.closed.Store(false)
		w.eventually("everything is there", func() bool { return w.timelineOf("x").Events >= 5 })
		w.eventually("everything is completed", func() bool { return w.bus.Stats(subPath).Completed == 8 })
		require.Equal(t, map[string]int64{"Counted": 4, "Grown": 1}, w.timelineOf("x").Types)
		require.Equal(t, "2026-01-01T00:00:05Z", w.timelineOf("x").Last)
		require.Zero(t, w.bus.Stats(subPath).DeadLettered)
		stop()
		a.end()
	})
}

// G6: a body that is gone for good, or another one than was kept, is poison with its own reason: never applied, never passed
// over.
func TestG6ALargeEventWhoseBodyIsLostIsPoison(t *testing.T) {
	for reason, spoil := range map[string]func(w *producerWorld, name string){
		"ClaimCheckMissing": func(w *producerWorld, name string) {
			_, err := blobClient(w.T, w.blob).DeleteBlob(w.Context(), "claim-checks", name, nil)
			require.NoError(w, err)
		},
		"ClaimCheckCorrupt": func(w *producerWorld, name string) {
			client := blobClient(w.T, w.blob).ServiceClient().NewContainerClient("claim-checks").NewBlockBlobClient(name)
			_, err := client.Upload(w.Context(), streaming.NopCloser(bytes.NewReader([]byte("something else"))), nil)
			require.NoError(w, err)
		},
	} {
		t.Run(reason, func(t *testing.T) {
			inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
				a := w.claiming()
				w.grow()
				w.eventually("all are published", func() bool { return w.bus.Stats(topic).Accepted == 8 })
				a.end()
				pages := blobClient(t, w.blob).NewListBlobsFlatPager("claim-checks", nil)
				page, err := pages.NextPage(t.Context())
				require.NoError(t, err)
				require.Len(t, page.Segment.BlobItems, 1)
				spoil(w, *page.Segment.BlobItems[0].Name)

				log, stop := w.project(&storage{})
				w.eventually("three are dead-lettered", func() bool { return w.bus.Stats(subPath).DeadLettered == 3 })
				w.eventually("the other aggregate is there", func() bool { return w.timelineOf("y").Events == 3 })
				require.EqualValues(t, 2, w.timelineOf("x").Events)
				require.Contains(t, log.text(), reason)
				stop()
			})
		})
	}
}

// A projector that is not told where the bodies are waits at the first one and says what to set; it refuses nothing.
func TestAProjectorWithoutStorageWaitsAtALargeEvent(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.claiming()
		log, stop := w.project(nil)
		w.grow()
		w.eventually("the other aggregate is there", func() bool { return w.timelineOf("y").Events == 3 })
		w.pause(10 * time.Minute)
		require.EqualValues(t, 2, w.timelineOf("x").Events)
		require.Zero(t, w.bus.Stats(subPath).DeadLettered)
		require.Contains(t, log.text(), "set BLOB_ACCOUNT_URL")
		stop()
		_, stop = w.project(&storage{})
		w.eventually("everything is there", func() bool { return w.timelineOf("x").Events == 5 })
		stop()
		a.end()
	})
}
