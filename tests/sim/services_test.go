package sim

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// slot is the place of one replica of a service, which runs one instance after another.
type slot struct {
	w       *world
	name    string
	launch  func(ctx context.Context, i *instance) error
	started int
	now     *instance // nil while none runs; the driver's goroutine alone
	gone    []*instance
	due     time.Time // when the platform starts one again; zero: not scheduled
}

// instance is one process of a service, with its links to the network.
type instance struct {
	name       string
	began      time.Time
	stop       context.CancelFunc
	done       chan struct{} // closed when it has ended
	asked      chan struct{} // closed when it was asked to end
	stopped    bool          // by an error that an operator must decide about; written before done is closed
	died       atomic.Bool   // of a deadly event
	hungUntil  time.Time     // a projector that has recovered from its last hang by then; the driver's goroutine alone
	bus, mongo *network.Link
	blob       *network.BlobLink // unused by a projector
	store      *network.Link     // to the checkpoint store, if that is MongoDB; unused by a projector
}

// start runs the next instance in a slot.
func (s *slot) start() {
	s.started++
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{
		name: fmt.Sprintf("%s.%d", s.name, s.started), began: time.Now(), stop: cancel, done: make(chan struct{}), asked: make(chan struct{}),
		bus: network.NewLink(s.w.busHub), mongo: network.NewLink(s.w.mongoHub),
		blob: network.NewBlobLink(checkpointWitness{s.w, s.w.blob.Transport()}), store: network.NewLink(s.w.mongoHub),
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
			if i.died.Load() {
				return
			}
			if i.stopped = s.w.expected(err); i.stopped {
				s.w.trace.add("%s is stopped: %v", i.name, err)
				return
			}
			s.w.ended(i.name, err)
		}
	}()
	s.w.trace.add("start %s", i.name)
}

// link is the way of an instance to one server.
type link interface {
	Hold(d network.Direction)
	Cut()
	Heal()
	Kill(silent bool)
}

func (i *instance) links() []link { return []link{i.bus, i.mongo, i.blob, i.store} }

func (i *instance) heal() {
	for _, l := range i.links() {
		l.Heal()
	}
}

// hasStopped reports whether the instance has ended on its own, for a reason that an operator must
// decide about.
func (i *instance) hasStopped() bool {
	select {
	case <-i.done:
		return i.stopped
	default:
		return false
	}
}

// fill starts the next instance if none runs.
func (s *slot) fill() {
	if s.now == nil {
		s.start()
	}
}

// kill ends the instance as a killed process ends or, with silent, a lost machine; what it does
// after that reaches no server.
func (s *slot) kill(silent bool) {
	if i := s.retire(); i != nil {
		for _, l := range i.links() {
			l.Kill(silent)
		}
		i.stop()
	}
}

// end asks the instance to stop, as SIGTERM does; it may still be stopping when end returns.
func (s *slot) end() *instance {
	i := s.retire()
	if i != nil {
		i.stop()
	}
	return i
}

// retire leaves the slot to the next instance; it returns nil if none runs.
func (s *slot) retire() *instance {
	i := s.now
	if i != nil {
		s.now = nil
		s.gone = append(s.gone, i)
		close(i.asked)
	}
	return i
}

// renew kills the instance if it has ended, and starts the next one when it is due after that.
func (s *slot) renew(ended func(*instance) bool, silent bool, after time.Duration) (died bool) {
	switch i := s.now; {
	case i != nil && ended(i):
		s.w.trace.add("%s has ended", i.name)
		s.kill(silent)
		s.due = time.Now().Add(after)
		return true
	case i == nil && !s.due.IsZero() && time.Now().After(s.due):
		s.due = time.Time{}
		s.start()
	}
	return false
}

func (w *world) newProducer(name string) *slot {
	s := &slot{w: w, name: name}
	s.launch = func(ctx context.Context, i *instance) error {
		streams := w.producerConfigs()
		return producer.Run(ctx, streams[0], producer.Options{
			Logger: w.logger(i.name), Instance: i.name,
			ServiceBus: busOptions(longWay{w, i.bus}),
			Blob:       blobOptions(w.recorded(senderSide{w, i.blob})),
			Mongo:      func(o *options.ClientOptions) { o.SetDialer(i.mongo) },
			Store:      w.storeOver(i.store),
		}, streams[1:]...)
	}
	return s
}

func (w *world) newProjector(name string) *slot {
	return w.newProjectorBy(name, func(c *projector.Config, o *projector.Options) { w.programOf(name).runs(c, o) })
}

// newProjectorBy is like newProjector with other settings.
func (w *world) newProjectorBy(name string, change func(*projector.Config, *projector.Options)) *slot {
	s := &slot{w: w, name: name}
	s.launch = func(ctx context.Context, i *instance) error {
		c, o := w.projectorConfig(), projector.Options{
			Logger: w.logger(i.name), Instance: i.name, Projections: w.projectionsOf(i),
			ServiceBus: busOptions(i.bus),
			Mongo:      func(o *options.ClientOptions) { o.SetDialer(i.mongo) },
		}
		change(&c, &o)
		return projector.Run(ctx, c, o)
	}
	return s
}

func busOptions(link options.ContextDialer) *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return link.DialContext(ctx, "", "")
		},
	}
}

// loaded returns the services' settings from an empty environment, except for the addresses.
var loaded = sync.OnceValues(func() (producer.Config, projector.Config) {
	for name, value := range map[string]string{
		"MONGODB_URI": mongo.URI("mongo:27017"), "MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "OPERATIONS": "insert",
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
	p.HTTPAddr, q.HTTPAddr = "", "" // sockets do not work in virtual time
	p.StatusInterval, q.StatusInterval = 0, 0
	p.FenceAfter = fenceAfter
	return p, q
})

// producerConfigs returns the settings of every stream, as STREAMS produces them.
func (w *world) producerConfigs() (all []producer.Config) {
	c, _ := loaded()
	s := w.plan.Settings
	c.LeaseTakeover, c.SessionKey = s.Takeover, s.SessionKey
	if s.Store != "" {
		c.CheckpointStore = witnessedStore
	}
	c.PublishLanesMax = s.Lanes
	c.PublishLanes, c.BatchScope, c.BatchMessages = s.Lanes, s.Scope, s.BatchMessages
	c.MessageFormat, c.MaxInFlightEvents = s.Format, s.MaxInFlight
	if s.OnRefused != "" {
		c.OnRefused, c.ClaimContainer = s.OnRefused, claims
	}
	if s.PackEvents > 0 {
		c.Pack, c.PackEvents, c.PackBytes = "auto", s.PackEvents, s.PackBytes
	}
	if s.OnReplaced != "" {
		c.OnCollectionReplaced = s.OnReplaced
	}
	if w.replacedIsKnown.Load() {
		c.OnCollectionReplaced = "continue"
	}
	readDocuments(&c, s.Documents)
	snapshot(&c, s)
	if w.imagesMayLack.Load() {
		c.BeforeChange = "whenAvailable"
	}
	if s.Streams > 1 {
		c.Streams = plan.Collections[:s.Streams]
	}
	for n, stream := range s.StreamNames() {
		c.Collection, c.Stream = plan.Collections[n], stream
		all = append(all, c)
	}
	return all
}

func (w *world) projectorConfig() projector.Config {
	_, c := loaded()
	s := w.plan.Settings
	c.Projection, c.VersionGapWait = s.Projection, s.GapWait.Duration
	c.SessionReceiver = s.Receiver
	c.VersionFirst = s.VersionFirst
	if s.Deliveries > 0 && !s.WrongDeliveries {
		c.MaxDeliveries = s.Deliveries
	}
	if s.BodyKiB > 0 {
		c.MaxInFlightBytes = s.RoomOfProjector()
	}
	c.WatchProcesses = s.WatchProcesses
	c.UndecidedAfter = cmp.Or(s.UndecidedAfter.Duration, c.UndecidedAfter)
	c.ApplyTimeout = cmp.Or(s.ApplyTimeout.Duration, c.ApplyTimeout)
	c.Connections, c.MaxSessions, c.ReceiveBatch = s.Connections, s.Sessions, s.ReceiveBatch
	c.SessionIdle, c.SessionMaxHold = 2*time.Second, s.MaxHold.Duration
	c.AcceptTimeout, c.ShutdownTimeout = time.Minute, 20*time.Second
	return c
}
