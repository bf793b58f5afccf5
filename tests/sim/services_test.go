package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
)

// settings are what a seed varies besides the faults.
type settings struct {
	Producers, Projectors int
	Streams               int // of a producer
	// SessionKey is SESSION_KEY.
	SessionKey              envelope.SessionKey
	Lanes, BatchMessages    int
	Scope, Format, Takeover string
	MaxInFlight             int64
	Sessions, Connections   int
	ReceiveBatch            int
	LockDuration, MaxHold   time.Duration
	Events, Hot, Cold       int
	Length                  time.Duration
	Faults                  int
	// Aimed are further faults, each made for one kind of bug; they have a random source of their own.
	Aimed int
	// Garbage is how many messages that nobody can read a stranger sends.
	Garbage int
	// Projection is what the projectors run: timeline (one document, guarded) or ledger (several, in transactions).
	Projection string
	// GapWait is VERSION_GAP_WAIT; 0: versions are not judged.
	GapWait time.Duration
	// Hangs says that ways to Service Bus may hang. The SDK holds mutexes while it waits for the network, and virtual time
	// does not pass while a goroutine waits for a mutex; so in these seeds a connection has one user: one lane, one session.
	Hangs bool
	// Round trips. Without any, everything is done in no time and a fault never meets anything under way. Service Bus has
	// none, for the same reason: a projector that starts uses one connection twice.
	MongoTrip, BlobTrip time.Duration
}

var trips = []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 60 * time.Millisecond}

func newSettings(r *rand.Rand) settings {
	s := settings{
		Producers: 2 + r.IntN(2), Projectors: 1 + r.IntN(3),
		Lanes: []int{1, 2, 4, 8}[r.IntN(4)], BatchMessages: []int{1, 5, 20, 100}[r.IntN(4)],
		Scope: []string{"session", "mixed"}[r.IntN(2)], Format: []string{"json", "bson"}[r.IntN(2)],
		Takeover:    []string{"break", "break", "break", "expiry"}[r.IntN(4)],
		MaxInFlight: []int64{10, 50, 1000}[r.IntN(3)],
		Sessions:    1 + r.IntN(6), Connections: 1 + r.IntN(2), ReceiveBatch: []int{1, 10, 100}[r.IntN(3)],
		LockDuration: time.Duration(8+r.IntN(20)) * time.Second, MaxHold: time.Duration(2+r.IntN(10)) * time.Second,
		Events: 80 + r.IntN(240), Hot: 1 + r.IntN(3), Cold: 5 + r.IntN(25),
		Length: time.Duration(25+r.IntN(35)) * time.Second, Faults: 6 + r.IntN(14),
	}
	if s.Hangs = r.IntN(2) == 0; s.Hangs {
		s.Lanes, s.Connections = 1, s.Sessions
	}
	s.MongoTrip, s.BlobTrip = trips[r.IntN(len(trips))], trips[r.IntN(len(trips))]
	s.Connections = min(s.Connections, s.Sessions)
	return s
}

// slot is where one replica of a service runs, one instance after another.
type slot struct {
	w       *world
	name    string
	launch  func(ctx context.Context, i *instance) error
	started int
	now     *instance // nil while none runs; the driver's goroutine alone
	gone    []*instance
}

// instance is one process of a service, with its links to the network.
type instance struct {
	name       string
	began      time.Time
	stop       context.CancelFunc
	done       chan struct{} // closed when it has ended
	asked      chan struct{} // closed when it was asked to end
	hungUntil  time.Time     // a projector that has recovered from its last hang by then; the driver's goroutine alone
	bus, mongo *network.Link
	blob       *network.BlobLink // unused by a projector
}

// start runs the next instance in a slot.
func (s *slot) start() {
	s.started++
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{
		name: fmt.Sprintf("%s.%d", s.name, s.started), began: time.Now(), stop: cancel, done: make(chan struct{}), asked: make(chan struct{}),
		bus: network.NewLink(s.w.busHub), mongo: network.NewLink(s.w.mongoHub),
		blob: network.NewBlobLink(checkpointWitness{s.w, s.w.blob.Transport()}),
	}
	s.now = i
	s.w.busLinks.Store(i.name, i.bus)
	go func() {
		defer close(i.done)
		err := s.launch(ctx, i)
		select {
		case <-i.asked:
			if err != nil {
				s.w.trace.add("%s ended with: %v", i.name, err)
			}
		default:
			s.w.ended(i.name, err)
		}
	}()
	s.w.trace.add("start %s", i.name)
}

// kill ends the instance as a killed process (or, silent, a machine that is gone) ends; what it does after that reaches
// nobody.
func (s *slot) kill(silent bool) *instance {
	i := s.now
	if i == nil {
		return nil
	}
	s.now = nil
	s.gone = append(s.gone, i)
	close(i.asked)
	i.bus.Kill(silent)
	i.mongo.Kill(silent)
	i.blob.Kill(silent)
	i.stop()
	return i
}

// end asks the instance to stop, as SIGTERM does; it may still be stopping when end returns.
func (s *slot) end() *instance {
	i := s.now
	if i == nil {
		return nil
	}
	s.now = nil
	s.gone = append(s.gone, i)
	close(i.asked)
	i.stop()
	return i
}

func (w *world) newProducer(n int) *slot {
	s := &slot{w: w, name: fmt.Sprintf("producer-%c", 'a'+n)}
	s.launch = func(ctx context.Context, i *instance) error {
		return producer.RunStreams(ctx, w.producerConfigs(), producer.Options{
			Logger: w.logger(i.name), Instance: i.name,
			ServiceBus: busOptions(i.bus),
			Blob:       blobOptions(w.recorded(senderSide{w, i.blob})),
			Mongo:      func(o *options.ClientOptions) { o.SetDialer(i.mongo) },
		})
	}
	return s
}

func (w *world) newProjector(n int) *slot {
	s := &slot{w: w, name: fmt.Sprintf("projector-%d", n)}
	s.launch = func(ctx context.Context, i *instance) error {
		return projector.Run(ctx, w.projectorConfig(), projector.Options{
			Logger: w.logger(i.name), Instance: i.name, Projections: w.projections,
			ServiceBus: busOptions(i.bus),
			Mongo:      func(o *options.ClientOptions) { o.SetDialer(i.mongo) },
		})
	}
	return s
}

func busOptions(link *network.Link) *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return link.DialContext(ctx, "", "")
		},
	}
}

// loaded are the services' settings as an empty environment makes them, but for the addresses.
var loaded = sync.OnceValues(func() (producer.Config, projector.Config) {
	for name, value := range map[string]string{
		"MONGODB_URI": mongo.URI("mongo:27017"), "MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events",
		"SERVICE_BUS_CONNECTION_STRING": servicebus.ConnectionString("bus:5672"),
		"SERVICE_BUS_TOPIC":             topic, "SERVICE_BUS_SUBSCRIPTION": subscription,
		"BLOB_CONNECTION_STRING": blob.ConnectionString(blobHost), "BLOB_CONTAINER": container, "PROJECTION": "timeline",
		"READ_MODEL_DATABASE": "readmodel",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	p, err := producer.LoadConfig()
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		panic(err)
	}
	q, err := projector.LoadConfig()
	if err != nil {
		panic(err)
	}
	p.HTTPAddr, q.HTTPAddr = "", "" // sockets have no place in virtual time
	p.StatusInterval, q.StatusInterval = 0, 0
	p.FenceAfter = fenceAfter
	return p, q
})

// producerConfigs are the settings of every stream, as STREAMS makes them.
func (w *world) producerConfigs() (all []producer.Config) {
	c, _ := loaded()
	c.LeaseTakeover = w.settings.Takeover
	c.PublishLanesMax = w.settings.Lanes
	c.PublishLanes, c.BatchScope, c.BatchMessages = w.settings.Lanes, w.settings.Scope, w.settings.BatchMessages
	c.SessionKey = w.settings.SessionKey
	c.MessageFormat, c.MaxInFlightEvents = w.settings.Format, w.settings.MaxInFlight
	if w.settings.Streams > 1 {
		c.Streams = collections[:w.settings.Streams]
	}
	for n := range w.settings.Streams {
		c.Collection, c.Stream = collections[n], w.streams()[n]
		all = append(all, c)
	}
	return all
}

func (w *world) projectorConfig() projector.Config {
	_, c := loaded()
	c.Projection, c.VersionGapWait = w.settings.Projection, w.settings.GapWait
	c.Connections, c.MaxSessions, c.ReceiveBatch = w.settings.Connections, w.settings.Sessions, w.settings.ReceiveBatch
	c.SessionIdle, c.SessionMaxHold = 2*time.Second, w.settings.MaxHold
	c.AcceptTimeout, c.ShutdownTimeout = time.Minute, 20*time.Second
	return c
}
