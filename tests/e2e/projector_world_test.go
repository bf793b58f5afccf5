package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	topic        = "changes"
	subscription = "projector"
	queue        = "changes-queue"
	tries        = "changes-tries" // as queue, with as many deliveries as where nobody says otherwise
	subPath      = topic + "/Subscriptions/" + subscription
	readModel    = "readmodel"
	lockDuration = 30 * time.Second
)

// projectorWorld is an embedded Service Bus and MongoDB, in memory and in virtual time, with projectors to run on them.
type projectorWorld struct {
	*testing.T
	bus      *servicebus.Server
	mongo    *mongo.Server
	busNet   *netpipe.Listener
	mongoNet *netpipe.Listener
	busOwn   *azservicebus.Client // the test's own
	sender   *azservicebus.Sender
	client   *driver.Client // the test's own

	projectors []*runningProjector
}

// tokensAreDue is when every token of Service Bus that the SDK has got is to be renewed. Links that several goroutines open at
// once leave all but the last behind, with a goroutine each that sleeps until then, finds its client closed and ends
// (azservicebus v1.11.0, AMQPLinksImpl.Get); a bubble must not end before. With all clients and servers gone it costs nothing.
const tokensAreDue = 3 * time.Hour

// inBubble runs f in virtual time, without latency: the SDK holds mutexes while it waits for the network, and virtual time
// does not pass while a goroutine waits for a mutex.
func inBubble(t *testing.T, f func(w *projectorWorld)) {
	t.Helper()
	virtualtime.Test(t, func(t *testing.T) {
		defer time.Sleep(tokensAreDue)
		inWorld(t, 0, f)
	})
}

// inWorld runs f; roundTrip is that of Service Bus.
func inWorld(t *testing.T, roundTrip time.Duration, f func(w *projectorWorld)) {
	t.Helper()
	inbound := servicebus.Inbound{RequiresDuplicateDetection: true, DuplicateDetectionWindow: 20 * time.Second}
	outbound := servicebus.Outbound{RequiresSession: true, LockDuration: lockDuration, MaxDeliveryCount: 3}
	bus, err := servicebus.New(servicebus.Config{
		Topics: []servicebus.Topic{{
			Name: topic, Inbound: inbound, Subscriptions: []servicebus.Subscription{{Name: subscription, Outbound: outbound}},
		}},
		Queues: []servicebus.Queue{
			{Name: queue, Inbound: inbound, Outbound: outbound},
			{Name: tries, Inbound: inbound, Outbound: servicebus.Outbound{RequiresSession: true, LockDuration: lockDuration}}, // ten
			{Name: "plain"}, // this and the next for the doctor to find wrong
			{Name: "short", Outbound: servicebus.Outbound{RequiresSession: true, LockDuration: 5 * time.Second}},
		},
	}, servicebus.Options{})
	require.NoError(t, err)
	w := &projectorWorld{
		T: t, bus: bus, mongo: mongo.New(mongo.Options{}),
		busNet: netpipe.Listen("bus:5672"), mongoNet: netpipe.Listen("mongo:27017"),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var servers sync.WaitGroup
	servers.Go(func() {
		var l net.Listener = w.busNet
		if roundTrip > 0 {
			delayed := netpipe.Delay(w.busNet, roundTrip)
			defer delayed.(*netpipe.DelayListener).Wait()
			l = delayed
		}
		if err := w.bus.Run(ctx, l); err != nil {
			t.Errorf("run Service Bus: %v", err)
		}
	})
	servers.Go(func() {
		if err := w.mongo.Run(ctx, w.mongoNet); err != nil {
			t.Errorf("run MongoDB: %v", err)
		}
	})
	busClient, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString("bus:5672"),
		&azservicebus.ClientOptions{NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return w.busNet.DialContext(ctx, "", "")
		}})
	require.NoError(t, err)
	w.busOwn = busClient
	w.sender, err = busClient.NewSender(topic, nil)
	require.NoError(t, err)
	w.client, err = driver.Connect(options.Client().ApplyURI(mongo.URI("mongo:27017")).SetDialer(w.mongoNet))
	require.NoError(t, err)
	defer func() {
		for _, p := range w.projectors {
			p.kill()
		}
		_ = busClient.Close(context.WithoutCancel(t.Context()))
		_ = w.client.Disconnect(context.WithoutCancel(t.Context()))
		cancel()
		servers.Wait()
	}()
	f(w)
}

// event is the change that inserts one event of an event store.
func event(aggregate string, n int, eventType string) envelope.Change {
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: fmt.Sprintf("%s/%d", aggregate, n)}}},
		{Key: "fullDocument", Value: bson.D{
			{Key: "_id", Value: fmt.Sprintf("%s/%d", aggregate, n)},
			{Key: "aggregateId", Value: aggregate},
			{Key: "version", Value: n},
			{Key: "type", Value: eventType},
			{Key: "occurredAt", Value: fmt.Sprintf("2026-01-01T00:00:%02dZ", n%60)},
		}},
	})
	if err != nil {
		panic(err)
	}
	position := fmt.Sprintf("82%022X", n)
	return envelope.Change{
		Stream: "shop.events", Token: position + aggregate, Position: position, Epoch: 1,
		Aggregate: aggregate, Operation: envelope.Insert, Type: eventType, Version: int64(n), Body: body,
	}
}

// publish sends changes in order, as one batch.
func (w *projectorWorld) publish(changes ...envelope.Change) {
	w.Helper()
	var messages []*azservicebus.Message
	for _, c := range changes {
		messages = append(messages, w.encode(c))
	}
	w.send(messages...)
}

func (w *projectorWorld) encode(c envelope.Change) *azservicebus.Message {
	w.Helper()
	m, err := envelope.Encode(c, envelope.JSON)
	require.NoError(w, err)
	return m
}

func (w *projectorWorld) send(messages ...*azservicebus.Message) {
	w.Helper()
	batch, err := w.sender.NewMessageBatch(w.Context(), nil)
	require.NoError(w, err)
	for _, m := range messages {
		require.NoError(w, batch.AddMessage(m, nil))
	}
	require.NoError(w, w.sender.SendMessageBatch(w.Context(), batch, nil))
}

// block makes MongoDB wait before it executes the next n commands of a name.
func (w *projectorWorld) block(command string, n int, d time.Duration) {
	w.Helper()
	require.NoError(w, w.client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: n}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{command}},
			{Key: "blockConnection", Value: true},
			{Key: "blockTimeMS", Value: d.Milliseconds()},
		}},
	}).Err())
}

// pass lets virtual time pass: what is tested is that time alone does no harm.
func (w *projectorWorld) pass(d time.Duration) {
	w.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.Context().Done():
		w.Fatal("the test ended")
	}
}

// watch follows the guard of every document of a collection: position after position, per aggregate, in commit order.
func (w *projectorWorld) watch(collection string) (positions func() map[string][]string) {
	w.Helper()
	stream, err := w.client.Database(readModel).Collection(collection).Watch(w.Context(), driver.Pipeline{},
		options.ChangeStream().SetFullDocument(options.UpdateLookup))
	require.NoError(w, err)
	return func() map[string][]string {
		seen := make(map[string][]string)
		// What is committed is there at once; then nothing comes any more.
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		for stream.Next(ctx) {
			id := stream.Current.Lookup("documentKey", "_id").StringValue()
			guard := stream.Current.Lookup("updateDescription", "updatedFields", "_sluice")
			if guard.Type == 0 {
				guard = stream.Current.Lookup("fullDocument", "_sluice")
			}
			seen[id] = append(seen[id], guard.Document().Lookup("position").StringValue())
		}
		require.ErrorIs(w, stream.Err(), context.DeadlineExceeded)
		require.NoError(w, stream.Close(w.Context()))
		return seen
	}
}

// runningProjector is a projector in this process, on connections of its own.
type runningProjector struct {
	w    *projectorWorld
	stop context.CancelFunc
	done chan error
	log  *recorder
	last *counters // once it has ended
	err  error
	// busPlug and mongoPlug connect it to the network.
	busPlug, mongoPlug *plug
}

func (w *projectorWorld) config() projector.Config {
	return projector.Config{
		ServiceBus: azure.ServiceBus{ConnectionString: servicebus.ConnectionString("bus:5672")},
		Topic:      topic, Subscription: subscription, Connections: 2,
		MongoURI: mongo.URI("mongo:27017"), Database: readModel, Projection: "timeline",
		MaxSessions: 8, ReceiveBatch: 100,
		SessionIdle: 2 * time.Second, SessionMaxHold: 30 * time.Second,
		AcceptTimeout: time.Minute, ApplyTimeout: 10 * time.Second, SettleTimeout: 5 * time.Second,
		VersionGapWait:  30 * time.Second,
		ShutdownTimeout: 20 * time.Second,
	}
}

// start runs a projector; change adjusts its settings.
func (w *projectorWorld) start(change func(*projector.Config, *projector.Options)) *runningProjector {
	ctx, cancel := context.WithCancel(context.Background())
	p := &runningProjector{w: w, stop: cancel, done: make(chan error, 1), log: &recorder{}, busPlug: &plug{}, mongoPlug: &plug{}}
	cfg := w.config()
	opts := projector.Options{
		Logger:   slog.New(slog.NewJSONHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Instance: "projector",
		ServiceBus: &azservicebus.ClientOptions{
			NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return p.busPlug.dial(ctx, w.busNet)
			},
		},
		Mongo: func(o *options.ClientOptions) { o.SetDialer(dialer{p.mongoPlug, w.mongoNet}) },
	}
	if change != nil {
		change(&cfg, &opts)
	}
	go func() {
		p.done <- projector.Run(ctx, cfg, opts)
		close(p.done)
	}()
	w.projectors = append(w.projectors, p)
	return p
}

// end asks the projector to stop, waits for it, and gives its error and its last words.
func (p *runningProjector) end() (counters, error) {
	if p.last == nil {
		p.stop()
		p.err = <-p.done
		if p.w.Failed() {
			p.w.Log(p.log.text())
		}
		p.last = p.log.last(p.w)
	}
	return *p.last, p.err
}

// kill makes the projector vanish from the network at once, as a process that is killed, and then ends it.
func (p *runningProjector) kill() {
	p.busPlug.pull()
	p.mongoPlug.pull()
	_, _ = p.end()
}

// eventually waits for something that no event announces.
func (w *projectorWorld) eventually(what string, ok func() bool) {
	w.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			w.Fatalf("not in a minute: %s; subscription: %+v", what, w.bus.Stats(subPath))
		}
	}
}

// completed waits until n messages are completed.
func (w *projectorWorld) completed(n int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d messages completed", n), func() bool { return w.bus.Stats(subPath).Completed >= n })
}

// timeline is the read model's document; events is 0 when there is none.
type timeline struct {
	Events int64            `bson:"events"`
	Types  map[string]int64 `bson:"types"`
	First  string           `bson:"firstOccurredAt"`
	Last   string           `bson:"lastOccurredAt"`
	Type   string           `bson:"lastType"`
	Guard  struct {
		Position string `bson:"position"`
		Version  int64  `bson:"version"`
	} `bson:"_sluice"`
}

func (w *projectorWorld) timeline(aggregate string) timeline {
	w.Helper()
	var doc timeline
	err := w.client.Database(readModel).Collection("timeline").FindOne(w.Context(), bson.D{{Key: "_id", Value: aggregate}}).Decode(&doc)
	if err != nil {
		require.ErrorIs(w, err, driver.ErrNoDocuments)
	}
	return doc
}

// plug is what connects a projector to the network.
type plug struct {
	mu      sync.Mutex
	conns   []net.Conn
	pulled  bool
	stalled chan struct{} // while not nil, what is written waits for it to be closed
	fuse    *fuse         // nil never blows
}

// fuse pulls plugs when it has let through what it is good for.
type fuse struct {
	mu    sync.Mutex
	left  int // writes
	blown bool
	plugs []*plug
}

// lay makes a fuse that blows after n writes through either of the plugs.
func lay(n int, plugs ...*plug) *fuse {
	f := &fuse{left: n, plugs: plugs}
	for _, p := range plugs {
		p.mu.Lock()
		p.fuse = f
		p.mu.Unlock()
	}
	return f
}

// hasBlown says whether the plugs have been pulled.
func (f *fuse) hasBlown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blown
}

// burn takes one write.
func (f *fuse) burn() {
	f.mu.Lock()
	f.left--
	blows := f.left < 0 && !f.blown
	f.blown = f.blown || blows
	f.mu.Unlock()
	if blows {
		for _, p := range f.plugs {
			p.pull()
		}
	}
}

func (p *plug) dial(ctx context.Context, l *netpipe.Listener) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled {
		return nil, net.ErrClosed
	}
	c, err := l.DialContext(ctx, "", "")
	if err == nil {
		c = &pluggedConn{c, p}
		p.conns = append(p.conns, c)
	}
	return c, err
}

// pluggedConn is a connection through a plug.
type pluggedConn struct {
	net.Conn
	plug *plug
}

func (c *pluggedConn) Write(b []byte) (int, error) {
	c.plug.mu.Lock()
	stalled, fuse := c.plug.stalled, c.plug.fuse
	c.plug.mu.Unlock()
	if fuse != nil {
		fuse.burn()
	}
	if stalled != nil {
		<-stalled
	}
	return c.Conn.Write(b)
}

// stall holds back what is written from now on. What was held back is lost when the plug is pulled.
func (p *plug) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = make(chan struct{})
}

// pull cuts every connection and lets no new one be made.
func (p *plug) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulled = true
	for _, c := range p.conns {
		c.Close()
	}
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// plugIn lets connections be made again.
func (p *plug) plugIn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulled = false
}

type dialer struct {
	plug *plug
	l    *netpipe.Listener
}

func (d dialer) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return d.plug.dial(ctx, d.l)
}

// counters are what a projector says when it stops.
type counters struct {
	Msg          string `json:"msg"`
	Applied      int    `json:"applied"`
	Duplicates   int    `json:"duplicates"`
	DeadLettered int    `json:"dead_lettered"`
	Redelivered  int    `json:"redelivered"`
}

// recorder keeps a log.
type recorder struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (r *recorder) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(line)
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.String()
}

func (r *recorder) last(w *projectorWorld) *counters {
	lines := bytes.Split(bytes.TrimSpace([]byte(r.text())), []byte("\n"))
	var c counters
	require.NoError(w, json.Unmarshal(lines[len(lines)-1], &c))
	require.Equal(w, "projector stopped", c.Msg)
	return &c
}
