package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
	"github.com/sluice-cdc/sluice/tests/internal/netpipe"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/record"
)

const (
	topic        = "changes"
	subscription = "projector"
	subPath      = topic + "/Subscriptions/" + subscription
	blobHost     = "blob:10000"
	database     = "shop"
	container    = "sluice"
	// duplicateWindow is the shortest that Service Bus allows: repeats far outside it are part of the plan.
	duplicateWindow = 20 * time.Second
	fenceAfter      = 4 * time.Second
)

// collections are what the streams of a run watch.
var collections = []string{"events", "returns"}

// world is the three servers, everything recorded of them, and the services that run.
type world struct {
	*testing.T
	random *rand.Rand // of the driver's goroutine alone, as is aim
	aim    *rand.Rand
	// mending decides how the operator goes about it.
	mending *rand.Rand
	began   time.Time
	trace   *trace

	bus      *servicebus.Server
	mongo    *mongo.Server
	blob     *blob.Server
	busHub   *network.Hub
	mongoHub *network.Hub
	client   *driver.Client // the simulation's own, over a link without faults
	blobs    *azblob.Client // likewise

	settings settings
	// hangUntil and cutUntil are until when a way of a projector to Service Bus hangs, or recovers from a cut: not both at
	// once, see mayHang. The driver's goroutine alone.
	hangUntil, cutUntil time.Time
	injected            []func() // end what is injected into Service Bus
	drips, sick         int      // aggregates of drip and of poisoned
	locksLost           bool     // they have been, once

	projections *projection.Registry
	mended      atomic.Bool // the projections can apply poison

	producers []*slot
	projector []*slot
	more      []*slot // projectors that a scaler starts and stops

	record   *record.Record
	leases   []*leasecheck.Recorder // of what every producer and stranger asks of each stream's checkpoint
	work     sync.WaitGroup         // what commits events
	writing  sync.Mutex             // one write of the checkpoint at a time
	busLinks sync.Map               // by the name of an instance, its *network.Link
}

// trace is what the simulation did, in order, for whoever has to understand a failure.
type trace struct {
	began time.Time
	mu    sync.Mutex
	text  strings.Builder
}

func (t *trace) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(&t.text, "%8.3fs  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

func (t *trace) Write(line []byte) (int, error) {
	t.add("%s", bytes.TrimSpace(line))
	return len(line), nil
}

// inWorld runs f with the servers up; it is called in a bubble of virtual time.
func inWorld(t *testing.T, seed uint64, f func(w *world)) {
	random, aim, mending := rand.New(rand.NewPCG(seed, 0x51)), rand.New(rand.NewPCG(seed, 0xa1)), rand.New(rand.NewPCG(seed, 0x3e))
	w := &world{
		T: t, random: random, aim: aim, mending: mending, began: time.Now(), trace: &trace{began: time.Now()}, settings: newSettings(random),
		busHub: network.Listen("bus:5672"), mongoHub: network.Listen("mongo:27017"),
		mongo: mongo.New(mongo.Options{}), blob: blob.New(blob.Options{}),
	}
	var err error
	w.projections, err = projection.NewRegistry(brittleDocument{projection.Timeline{}, &w.mended}, brittle{ledger{}, &w.mended})
	require.NoError(t, err)
	w.settings.Aimed, w.settings.Projection = 1+aim.IntN(5), []string{timelineName, timelineName, timelineName, ledgerName}[aim.IntN(4)]
	w.settings.GapWait = []time.Duration{0, 30 * time.Second}[aim.IntN(2)]
	w.settings.Garbage = mending.IntN(4)
	if w.settings.Streams = 1; seed%4 == 3 {
		w.settings.Streams = len(collections)
	}
	if seed%8 == 0 {
		w.settings.SessionKey = envelope.Buckets(3)
	}
	w.record = record.New(checker.Run{FenceAfter: fenceAfter, History: history.History{SessionKey: w.settings.SessionKey}})
	for _, stream := range w.streams() {
		w.leases = append(w.leases, leasecheck.NewRecorder(container+"/"+stream+".json"))
	}
	w.trace.add("seed %d: %+v", seed, w.settings)
	w.bus, err = servicebus.New(servicebus.Config{Topics: []servicebus.Topic{{
		Name:    topic,
		Inbound: servicebus.Inbound{RequiresDuplicateDetection: true, DuplicateDetectionWindow: duplicateWindow},
		Subscriptions: []servicebus.Subscription{{Name: subscription, Outbound: servicebus.Outbound{
			RequiresSession: true, LockDuration: w.settings.LockDuration, MaxDeliveryCount: 10,
		}}},
	}}}, servicebus.Options{})
	require.NoError(t, err)
	w.bus.Observe(w.record.Accept)

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // ended below, in order
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.bus.Run(ctx, w.busHub); err != nil {
			t.Errorf("run Service Bus: %v", err)
		}
	})
	running.Go(func() {
		if err := serve(ctx, w.mongo.Run, w.mongoHub, w.settings.MongoTrip); err != nil {
			t.Errorf("run MongoDB: %v", err)
		}
	})
	w.client, err = driver.Connect(options.Client().ApplyURI(mongo.URI("mongo:27017")).SetDialer(network.NewLink(w.mongoHub)))
	require.NoError(t, err)
	w.blobs, err = azblob.NewClientFromConnectionString(blob.ConnectionString(blobHost), blobOptions(w.recorded(w.blob.Transport())))
	require.NoError(t, err)
	watching, stopWatching := context.WithCancel(ctx)
	watched := make(chan struct{})
	running.Go(func() { w.watch(watching, watched) })
	<-watched
	defer func() {
		stopWatching()
		_ = w.client.Disconnect(context.WithoutCancel(ctx))
		cancel()
		running.Wait()
		time.Sleep(tokensAreDue)
	}()
	f(w)
}

// tokensAreDue is when every token of Service Bus that the SDK has got is to be renewed: links that it has lost sight of end
// then, their clients being closed.
const tokensAreDue = 3 * time.Hour

// streams are the names of the run's streams.
func (w *world) streams() (names []string) {
	for _, collection := range collections[:w.settings.Streams] {
		names = append(names, database+"."+collection)
	}
	return names
}

// recorded is a transport of which every stream's recorder sees what is asked of its checkpoint.
func (w *world) recorded(next leasecheck.Doer) leasecheck.Doer {
	for _, r := range w.leases {
		next = r.Client(next)
	}
	return next
}

// serve runs a server with a round trip.
func serve(ctx context.Context, run func(context.Context, net.Listener) error, l net.Listener, trip time.Duration) error {
	slow := netpipe.Delay(l, trip)
	if d, ok := slow.(*netpipe.DelayListener); ok {
		defer d.Wait()
	}
	return run(ctx, slow)
}

// late says whether a message that the broker accepted at this moment had waited in the network since its leader sent it.
func (w *world) late(leader string, at time.Time) bool {
	link, ok := w.busLinks.Load(leader)
	return ok && link.(*network.Link).Released(at)
}

// checkpointWitness sits between a producer's link and the storage and records the writes of the checkpoint.
type checkpointWitness struct {
	w  *world
	to network.Doer
}

// sentKey carries what was known when a request was sent.
type sentKey struct{}

type sent struct {
	at       time.Time
	accepted int
	number   atomic.Int64 // of the recorded write, once the storage took it; else -1
}

// senderSide stamps requests before the link; it learns which writes were answered.
type senderSide struct {
	w    *world
	link *network.BlobLink
}

func (s senderSide) Do(r *http.Request) (*http.Response, error) {
	stamp := &sent{at: time.Now(), accepted: s.w.record.Accepted()}
	stamp.number.Store(-1)
	if pause(r.Context(), s.w.settings.BlobTrip/2); r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	response, err := s.link.Do(r.WithContext(context.WithValue(r.Context(), sentKey{}, stamp)))
	if pause(r.Context(), s.w.settings.BlobTrip/2); r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	if number := stamp.number.Load(); err == nil && number >= 0 {
		s.w.record.Answered(int(number))
	}
	return response, err
}

func (c checkpointWitness) Do(r *http.Request) (*http.Response, error) {
	if !isCheckpointWrite(r) || !strings.HasSuffix(r.URL.Path, ".json") {
		return c.to.Do(r)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	// The storage answers at once, on this goroutine: the record is in the order in which it took the writes.
	c.w.writing.Lock()
	defer c.w.writing.Unlock()
	response, err := c.to.Do(r)
	if err != nil || response.StatusCode != http.StatusCreated {
		return response, err
	}
	var said struct {
		Stream    string `json:"stream"`
		Epoch     int64  `json:"epoch"`
		Leader    string `json:"leader"`
		Position  string `json:"position"`
		Published int64  `json:"published"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		c.w.Errorf("read what was written to the checkpoint: %v", err)
	}
	stamp, _ := r.Context().Value(sentKey{}).(*sent)
	stamp.number.Store(int64(c.w.record.Write(checker.Write{
		Stream: said.Stream, Epoch: said.Epoch, Leader: said.Leader, Position: said.Position, Published: said.Published,
		LeaseID: header(r, "x-ms-lease-id"), Began: stamp.at, Accepted: stamp.accepted,
	})))
	return response, nil
}

// header is a header as the SDK sets it: under its name in lower case, where Header.Get does not look.
func header(r *http.Request, name string) string {
	if values := r.Header[name]; len(values) > 0 {
		return values[0]
	}
	return r.Header.Get(name)
}

func blobOptions(t network.Doer) *azblob.ClientOptions {
	o := &azblob.ClientOptions{}
	o.Transport = t
	return o
}

// logger writes what an instance warns of into the trace.
func (w *world) logger(instance string) *slog.Logger {
	level := slog.LevelInfo
	return slog.New(slog.NewTextHandler(w.trace, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})).With("instance", instance)
}

// pause lets virtual time pass.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// eventually polls in virtual time; it reports false when it is not so within d.
func (w *world) eventually(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); {
		if time.Now().After(end) {
			return false
		}
		pause(w.Context(), 20*time.Millisecond)
	}
	return true
}

func (w *world) ended(instance string, err error) {
	if err == nil {
		err = errors.New("it ended without an error and without being asked to")
	}
	w.record.End(instance, err)
}
