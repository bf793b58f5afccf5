package live

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/tracing"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// service is the slot of one replica, which runs one instance after another.
type service struct {
	w        *world
	kind     string // producer or projector
	name     string
	launched int
	now      *instance   // nil while none runs
	gone     []*instance // the earlier ones
}

// instance stands for one process, with a network of its own.
type instance struct {
	w          *world
	kind, name string
	proxy      *wire.Proxy
	cut        context.CancelFunc // ends the proxy
	log        *log
	stop       context.CancelFunc
	asked      atomic.Bool // it was asked to stop, or killed
	done       chan struct{}
	err        error // read after done is closed
}

// serve starts the first instance of each replica, and waits until every stream has a leader.
func (w *world) serve(producers, projectors int) {
	w.Helper()
	for n := range producers + projectors {
		s := &service{w: w, kind: "producer", name: fmt.Sprintf("producer-%c", 'a'+n)}
		if n >= producers {
			s.kind, s.name = "projector", fmt.Sprintf("projector-%d", n-producers)
			w.projectors = append(w.projectors, s)
		}
		w.services = append(w.services, s)
		s.start()
	}
	for _, stream := range w.streams() {
		w.until(stream+" has begun", func() bool { return w.checkpoints.Last(stream).Position != "" })
	}
}

// start runs the next instance.
func (s *service) start() {
	s.launched++
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.w.Context()))
	through, cut := context.WithCancel(context.WithoutCancel(s.w.Context()))
	s.now = &instance{
		w: s.w, kind: s.kind, name: fmt.Sprintf("%s.%d", s.name, s.launched), log: &log{}, stop: cancel, cut: cut, done: make(chan struct{}),
	}
	var err error
	s.now.proxy, err = wire.Listen(ctx, s.now.name, wire.Addrs{
		Mongo: stack.Host(s.w.mongo), ServiceBus: stack.Host(s.w.stack.Endpoint(emulator.EnvServiceBus)), Blob: stack.Host(s.w.stack.Endpoint(emulator.EnvBlob)),
	}, wire.Loopback, &s.w.checkpoints, nil)
	require.NoError(s.w, err)
	proxy := s.now.proxy
	s.w.networks.Go(func() {
		if err := proxy.Run(through); err != nil {
			s.w.Errorf("run the network of %s: %v", proxy.Name(), err)
		}
	})
	s.w.trace("start %s", s.now.name)
	go s.now.run(ctx)
	s.w.scraping.Go(s.now.scrape)
}

// run does what the programs do between their signals and their exit codes.
func (i *instance) run(ctx context.Context) {
	defer close(i.done)
	logger := slog.New(slog.NewJSONHandler(i.log, nil))
	traces, err := tracing.FromEnvironment(ctx, i.kind, i.name, logger)
	if err != nil {
		i.w.Errorf("open the trace exporter: %v", err)
	}
	defer traces.Close(ctx)
	addrs := i.proxy.Addrs()
	if i.kind == "producer" {
		streams := i.w.producing(addrs.ServiceBus, addrs.Blob)
		i.err = producer.Run(ctx, streams[0], producer.Options{
			Logger: logger, Instance: i.name, Tracer: traces.Tracer("producer"), Blob: i.w.storing(), Mongo: i.dialMongo,
		}, streams[1:]...)
	} else {
		i.err = projector.Run(ctx, i.w.projecting(addrs.ServiceBus, addrs.Blob), projector.Options{
			Logger: logger, Instance: i.name, Projections: i.w.settings.Projections, Tracer: traces.Tracer("projector"), Mongo: i.dialMongo,
		})
	}
	i.w.trace("%s ended: %v", i.name, i.err)
	if !i.asked.Load() {
		i.w.Errorf("%s ended unasked: %v\n%s", i.name, i.err, i.log)
	}
}

// dialMongo makes a client use the instance's network, regardless of the server's address.
func (i *instance) dialMongo(o *options.ClientOptions) { o.SetDialer(i) }

// DialContext implements [options.ContextDialer].
func (i *instance) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, i.proxy.Addrs().Mongo)
}

// ask asks the instance to stop, as SIGTERM does.
func (i *instance) ask() {
	i.asked.Store(true)
	i.stop()
}

// joined waits until the instance has ended.
func (i *instance) joined() {
	select {
	case <-i.done:
	case <-time.After(patience):
		i.w.Errorf("%s does not end\n%s", i.name, i.log)
	}
}

// end asks the instance to stop, and requires it to do so without an error.
func (s *service) end() {
	i := s.now
	s.now, s.gone = nil, append(s.gone, i)
	s.w.trace("stop %s", i.name)
	i.ask()
	i.joined()
	require.NoError(s.w, i.err, "%s was asked to stop\n%s", i.name, i.log)
}

// kill cuts the instance off from every server and ends it: whatever it does afterwards has no
// effect, as if its process was killed.
func (s *service) kill() {
	i := s.now
	s.now, s.gone = nil, append(s.gone, i)
	s.w.trace("kill %s", i.name)
	i.asked.Store(true)
	i.cut()
	i.stop()
}

// leader returns the service that last wrote a stream's checkpoint, as soon as that service is
// running.
func (w *world) leader(stream string) (leader *service) {
	w.Helper()
	w.until(stream+" has a leader", func() bool {
		name := w.checkpoints.Last(stream).Leader
		for _, s := range w.services {
			if s.now != nil && s.now.name == name {
				leader = s
			}
		}
		return leader != nil
	})
	return leader
}

// loaded returns the services' settings as loaded from an environment that sets only addresses and
// a few times.
var loaded = sync.OnceValues(func() (producer.Config, projector.Config) {
	for name, value := range map[string]string{
		"MONGODB_URI": mongo.URI("server:27017"), "MONGODB_DATABASE": database, "MONGODB_COLLECTION": "events", "OPERATIONS": "insert",
		"SERVICE_BUS_CONNECTION_STRING": servicebus.ConnectionString("server:5672"),
		"SERVICE_BUS_TOPIC":             emulator.Topic, "SERVICE_BUS_SUBSCRIPTION": emulator.Subscription,
		"BLOB_CONNECTION_STRING": blob.ConnectionString("server:10000"), "BLOB_CONTAINER": container,
		"READ_MODEL_DATABASE": readModel, "SOURCE_DATABASE": database, "SOURCE_COLLECTION": "events",
		"HTTP_ADDR": "127.0.0.1:0", "STATUS_INTERVAL": "100ms",
		// These leave room for a busy machine: a leader that keeps losing its lease makes no
		// progress.
		"HEARTBEAT_INTERVAL": "200ms", "STANDBY_POLL": "200ms", "FENCE_AFTER": "8s", "TAKEOVER_AFTER": "10s",
		"SESSION_IDLE": "200ms", "SESSION_MAX_HOLD": "500ms", "SHUTDOWN_TIMEOUT": "15s",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	p, err := producer.LoadConfig()
	if err != nil {
		panic(err)
	}
	q, err := projector.LoadConfig()
	if err != nil {
		panic(err)
	}
	return p, q
})

// producing returns the settings of a producer that uses these addresses.
func (w *world) producing(bus, blobs string) (all []producer.Config) {
	c, _ := loaded()
	c.MongoURI = w.mongo
	c.ServiceBus.ConnectionString, c.Blob.ConnectionString = servicebus.ConnectionString(bus), blob.ConnectionString(blobs)
	c.SessionKey, c.BatchMessages, c.PublishLanes = w.settings.SessionKey, 10, w.settings.Lanes
	if w.settings.Claims {
		c.OnOversize = "claimcheck"
	}
	if len(w.settings.Collections) > 1 {
		c.Streams = w.settings.Collections
	}
	for n, collection := range w.settings.Collections {
		c.Collection, c.Stream = collection, w.streams()[n]
		all = append(all, c)
	}
	return all
}

// projecting returns the settings of a projector that uses these addresses.
func (w *world) projecting(bus, blobs string) projector.Config {
	_, c := loaded()
	c.MongoURI, c.SourceCollection = w.mongo, w.settings.Collections[0]
	c.ServiceBus.ConnectionString, c.Blob.ConnectionString = servicebus.ConnectionString(bus), blob.ConnectionString(blobs)
	c.MaxDeliveries = maxDeliveries
	c.Projection, c.MaxSessions, c.Connections, c.ReceiveBatch = w.settings.Projection, w.settings.Sessions, w.settings.Connections, 20
	return c
}

// storing returns the options of a Blob storage client whose requests for the checkpoints are
// recorded.
func (w *world) storing() *azblob.ClientOptions {
	var transport leasecheck.Doer = http.DefaultClient
	for _, recorder := range w.leases {
		transport = recorder.Client(transport)
	}
	o := &azblob.ClientOptions{}
	o.Transport = transport
	return o
}

// log keeps the log of an instance without its status records, which the tests request anyway.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements [io.Writer].
func (l *log) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`"msg":"status"`)) {
		return len(line), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var served = regexp.MustCompile(`"serving health checks".*?"addr":"([^"]+)"`)

// address returns the address at which the instance serves its health, or "" before it does.
func (l *log) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := served.FindSubmatch(l.text.Bytes()); found != nil {
		return string(found[1])
	}
	return ""
}

// withCollector runs the tests with a collector of traces, to which every service sends its spans.
func withCollector(run func() int) int {
	var taken atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { taken.Add(r.ContentLength) }))
	defer server.Close()
	if err := os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL); err != nil {
		panic(err)
	}
	code := run()
	if code == 0 && taken.Load() == 0 {
		fmt.Fprintln(os.Stderr, "no service sent a span")
		return 1
	}
	return code
}
