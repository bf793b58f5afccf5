package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
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

	"github.com/sluice-cdc/sluice/producer/store"
	mongodbstore "github.com/sluice-cdc/sluice/producer/store/mongodb"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
	"github.com/sluice-cdc/sluice/tests/sim/internal/record"
)

const (
	topic        = "changes"
	subscription = "projector"
	subPath      = topic + "/Subscriptions/" + subscription
	blobHost     = "blob:10000"
	container    = "sluice"
	claims       = "claim-checks"
	fenceAfter   = 2500 * time.Millisecond
)

// world is the three servers, everything recorded of them, and the services that run.
type world struct {
	*testing.T
	plan    plan.Plan
	began   time.Time // every stream; before that, zero
	trace   *trace
	verbose bool      // everything that happened is logged, also where nothing failed
	broken  *promises // by this run
	met     coverage  // by this run, as far as its record does not show it

	bus      *servicebus.Server
	mongo    *mongo.Server
	blob     *blob.Server
	busHub   *network.Hub
	mongoHub *network.Hub
	client   *driver.Client // the simulation's own, over a link without faults
	blobs    *azblob.Client // likewise

	// hangUntil and cutUntil are the times until which a connection of a projector to Service Bus
	// hangs, or recovers from a cut: not both at once, see mayHang. The driver's goroutine alone.
	hangUntil, cutUntil time.Time
	injected            []func() // end what is injected into Service Bus

	opening atomic.Int64 // how long a producer takes to open a connection to Service Bus, in nanoseconds
	started sync.Map     // the streams whose snapshots the operator has started

	committed map[plan.Event]int64 // of the aggregates of the workload; belongs to what commits it
	documents *documents           // of the workload; nil if they never change
	rows      rows

	failing    map[string]func() // by aggregate, what ends the failure of its event; the driver's goroutine alone
	slowEvents atomic.Int64      // how long a projection takes for an event, in nanoseconds
	versions   versions
	hangs      sync.Map // by aggregate, a channel that is closed when its projection returns
	programs   programs
	fixed      atomic.Bool // the projections can apply poison

	// decisions are what may stop a stream until the operator decides, decided is when that was
	// done last, by stream, and tended when tend ran last. The driver's goroutine alone.
	replacedIsKnown atomic.Bool // the operator's setting, once a collection was replaced
	decisions       []stop
	imagesMayLack   atomic.Bool // the operator's setting, once an image was required and was not there
	decided         map[string]time.Time
	tended          time.Time

	producers []*slot
	projector []*slot
	more      []*slot // projectors that a scaler starts and stops

	store      *mongodbstore.Store // the simulation's own, over w.client's network; unused if the checkpoint is in Blob storage
	checkpoint sync.Map            // by the tag of a record that is written to the store, its *sent

	record   *record.Record
	leases   []*leasecheck.Recorder // of the requests of every producer and stranger for each stream's checkpoint
	work     sync.WaitGroup         // what commits events
	driver   chan func()            // what work asks the driver's goroutine for, once all has healed
	writing  sync.Mutex             // one write of the checkpoint at a time
	busLinks sync.Map               // by the name of an instance, its *network.Link
}

// inWorld runs f with the servers up; it is called in a bubble of virtual time.
func inWorld(t *testing.T, p plan.Plan, f func(w *world)) {
	w := &world{
		driver: make(chan func()),
		T:      t, plan: p, trace: newTrace(), committed: map[plan.Event]int64{}, failing: map[string]func(){}, broken: &promises{},
		programs: programs{all: map[string]*sidecar{}, fatal: map[string]bool{}}, rows: rows{lines: map[place]*changesOf{}, seen: map[string]bool{}},
		busHub: network.Listen("bus:5672"), mongoHub: network.Listen("mongo:27017"),
		mongo: mongo.New(mongo.Options{AcceptLostTokens: true, TokenVersion: p.Settings.TokenVersion, Version: mongo.Versions[p.Settings.MongoVersion]}), blob: blob.New(blob.Options{}),
		record: record.New(checker.Run{FenceAfter: fenceAfter, History: history.History{SessionKey: p.Settings.SessionKey}}),
	}
	w.documents = w.newDocuments()
	w.decisions, w.decided = w.stops(), map[string]time.Time{}
	var err error
	for _, stream := range p.Settings.StreamNames() {
		w.leases = append(w.leases, leasecheck.NewRecorder(container+"/"+stream+".json"))
	}
	w.bus, err = servicebus.New(servicebus.Config{Topics: []servicebus.Topic{{
		Name: topic,
		Inbound: servicebus.Inbound{
			RequiresDuplicateDetection: true, DuplicateDetectionWindow: plan.DuplicateWindow, EnablePartitioning: p.Settings.Partitioned,
		},
		Subscriptions: []servicebus.Subscription{{Name: subscription, Outbound: servicebus.Outbound{
			RequiresSession: true, LockDuration: p.Settings.LockDuration.Duration, MaxDeliveryCount: cmp.Or(p.Settings.Deliveries, 10),
			DeadLetteringOnMessageExpiration: true,
		}, DefaultMessageTimeToLive: p.Settings.TimeToLive.Duration}},
	}}}, servicebus.Options{})
	require.NoError(t, err)
	w.bus.Observe(func(a servicebus.Accepted) {
		events := witness.Events(a)
		if len(events) > 1 {
			w.met.add("packs", 1)
			w.met.add("events in packs", len(events))
		}
		for _, e := range events {
			w.record.Accept(e)
		}
		w.supersede(a)
	})

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // ended below, in order
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.bus.Run(ctx, w.busHub); err != nil {
			t.Errorf("run Service Bus: %v", err)
		}
	})
	running.Go(func() {
		if err := serve(ctx, w.mongo.Run, w.mongoHub, p.Settings.MongoTrip.Duration); err != nil {
			t.Errorf("run MongoDB: %v", err)
		}
	})
	w.client, err = driver.Connect(options.Client().ApplyURI(mongo.URI("mongo:27017")).SetDialer(network.NewLink(w.mongoHub)))
	require.NoError(t, err)
	w.keepImages()
	w.mongo.RefuseWrites(w.witnessStored)
	w.store, err = mongodbstore.Open(mongo.URI("mongo:27017"), checkpoints, func(o *options.ClientOptions) { o.SetDialer(network.NewLink(w.mongoHub)) })
	require.NoError(t, err)
	w.blobs, err = azblob.NewClientFromConnectionString(blob.ConnectionString(blobHost), blobOptions(w.recorded(w.blob.Transport())))
	require.NoError(t, err)
	watching, stopWatching := context.WithCancel(ctx)
	watched := make(chan struct{})
	running.Go(func() { w.watch(watching, watched) })
	<-watched
	defer func() {
		if w.Failed() || w.verbose {
			w.Logf("\n%s", w.trace)
		}
		stopWatching()
		_ = w.client.Disconnect(context.WithoutCancel(ctx))
		_ = w.store.Client().Disconnect(context.WithoutCancel(ctx))
		cancel()
		running.Wait()
		time.Sleep(tokensAreDue)
	}()
	f(w)
}

// tokensAreDue is when all the SDK's tokens of Service Bus are renewed: links that it has abandoned
// end then, since their clients are closed.
const tokensAreDue = 3 * time.Hour

// recorded returns a transport with which every stream's recorder sees the requests for its
// checkpoint.
func (w *world) recorded(next leasecheck.Doer) leasecheck.Doer {
	for _, r := range w.leases {
		next = r.Client(next)
	}
	return next
}

// recordedStore is like recorded for a checkpoint in MongoDB.
func (w *world) recordedStore(next store.Store) store.Store {
	for _, r := range w.leases {
		next = r.Store(next)
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

// late reports whether a message that the broker accepted at this moment had been delayed by the
// network since its leader sent it.
func (w *world) late(leader string, at time.Time) bool {
	link, ok := w.busLinks.Load(leader)
	return ok && link.(*network.Link).Released(at)
}

// checkpointWitness sits between a producer's link and the storage and records the writes of the
// checkpoint.
type checkpointWitness struct {
	w  *world
	to network.Doer
}

// sentKey is the key of what was known when a request was sent.
type sentKey struct{}

type sent struct {
	at       time.Time
	accepted int
	parked   int
	number   atomic.Int64 // of the recorded write, once the storage took it; else -1
}

// senderSide stamps requests before the link; it learns which writes were answered.
type senderSide struct {
	w    *world
	link *network.BlobLink
}

func (s senderSide) Do(r *http.Request) (*http.Response, error) {
	stamp := s.w.stamp()
	if pause(r.Context(), s.w.plan.Settings.BlobTrip.Duration/2); r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	response, err := s.link.Do(r.WithContext(context.WithValue(r.Context(), sentKey{}, stamp)))
	if pause(r.Context(), s.w.plan.Settings.BlobTrip.Duration/2); r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	if number := stamp.number.Load(); err == nil && number >= 0 {
		s.w.record.Answered(int(number))
	}
	return response, err
}

func (c checkpointWitness) Do(r *http.Request) (*http.Response, error) {
	keepsake := isKeepsake(r)
	if !keepsake && (!isCheckpointWrite(r) || !strings.Contains(r.URL.Path, "/"+container+"/") || !strings.HasSuffix(r.URL.Path, ".json")) {
		return c.to.Do(r)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	// The storage answers at once, on this goroutine: the record is in the order in which it
	// accepted the writes.
	c.w.writing.Lock()
	defer c.w.writing.Unlock()
	response, err := c.to.Do(r)
	if err != nil || response.StatusCode != http.StatusCreated {
		return response, err
	}
	if keepsake {
		c.w.witnessKeepsake(text)
		return response, nil
	}
	stamp, _ := r.Context().Value(sentKey{}).(*sent)
	c.w.written(text, header(r, "x-ms-lease-id"), stamp)
	return response, nil
}

// written records a write of a record that a server has accepted.
func (w *world) written(text []byte, leaseID string, stamp *sent) {
	var stored struct {
		Stream     string `json:"stream"`
		Epoch      int64  `json:"epoch"`
		Generation int64  `json:"generation"`
		Leader     string `json:"leader"`
		Position   string `json:"position"`
		Published  int64  `json:"published"`
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		w.Errorf("read what was written to the checkpoint: %v", err)
	}
	stamp.number.Store(int64(w.record.Write(checker.Write{
		Stream: stored.Stream, Epoch: stored.Epoch, Leader: stored.Leader, Position: stored.Position, Generation: stored.Generation, Published: stored.Published,
		LeaseID: leaseID, Began: stamp.at, Accepted: stamp.accepted, Parked: stamp.parked,
	})))
}

// stamp returns what is known when a request is sent.
func (w *world) stamp() *sent {
	stamp := &sent{at: time.Now(), accepted: w.record.Accepted(), parked: w.record.Parked()}
	stamp.number.Store(-1)
	return stamp
}

// header returns a header as the SDK sets it: under its name in lower case, which Header.Get does
// not find.
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

// logger writes the warnings of an instance into the trace.
func (w *world) logger(instance string) *slog.Logger {
	return slog.New(slog.NewTextHandler(w.trace, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
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

// eventually polls in virtual time; it returns false if the condition does not become true within
// d, which starts again after each decision of the operator: there may be one for each change.
func (w *world) eventually(d time.Duration, ok func() bool) bool {
	began := time.Now()
	for !ok() {
		for _, decided := range w.decided {
			if decided.After(began) {
				began = decided
			}
		}
		waited := time.Since(began)
		if waited > d {
			return false
		}
		// What has not happened soon may happen late, or never: polling takes the time.
		pause(w.Context(), max(20*time.Millisecond, waited/100))
	}
	return true
}

func (w *world) ended(instance string, err error) {
	if err == nil {
		err = errors.New("it ended without an error and without being asked to")
	}
	w.record.End(instance, err)
}
