package live

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
)

const (
	database  = "shop"
	readModel = "readmodel"
	container = "sluice"
	timeline  = "timeline"
	orders    = "orders"
	// lockDuration and duplicateWindow are the shortest that Service Bus allows.
	lockDuration    = 5 * time.Second
	duplicateWindow = 20 * time.Second
	// maxDeliveries is the deployment's value: locks that are lost repeatedly park nothing.
	maxDeliveries = 1000
	// patience bounds every wait, with room for very busy machines.
	patience = 2 * time.Minute
	grain    = 5 * time.Millisecond
)

// settings are the differences between the tests.
type settings struct {
	// Collections are watched, each by its own stream.
	Collections []string
	// Projection is the name of the projection that the projectors run; Projections is the registry
	// to find it in, or nil for the default.
	Projection            string
	Projections           *projection.Registry
	SessionKey            envelope.SessionKey
	Claims                bool // large events are published as claim checks
	Lanes                 int  // of a stream
	Sessions, Connections int  // of a projector
}

// world is the servers over TCP, the recorded observations and the running services.
type world struct {
	*testing.T
	settings settings
	stack    *emulator.Stack
	mongo    string         // the connection string of MongoDB
	real     bool           // MongoDB is not the embedded one
	client   *driver.Client // the test's own, past every network
	leases   []*leasecheck.Recorder

	// Only the test's goroutine uses services, their instances and seeds.
	services   []*service
	projectors []*service // of the services
	seeds      *rand.Rand
	scraping   sync.WaitGroup // scrapes instances until they end
	steps      atomic.Int64   // of events that may be committed
	flowing    atomic.Bool    // events are committed regardless of steps
	enough     atomic.Bool    // ends the goroutines of outside
	outside    sync.WaitGroup // commits events and runs commands

	checkpoints wire.Checkpoints
	networks    sync.WaitGroup // of all instances

	// What is observed from outside the services.
	rec  *history.Recorder
	mu   sync.Mutex
	run  checker.Run // without what rec has, until it is judged; guarded by mu until everything has ended
	over bool        // the witness of the read model has seen its last change; guarded by mu
}

// inWorld runs f with the servers up, and judges what was recorded.
func inWorld(t *testing.T, s settings, f func(w *world)) {
	t.Helper()
	entities := emulator.Entities()
	entities.Topics[0].DuplicateDetectionWindow = duplicateWindow
	entities.Topics[0].Subscriptions[0].LockDuration, entities.Topics[0].Subscriptions[0].MaxDeliveryCount = lockDuration, maxDeliveries
	servers := emulator.Start(t, emulator.Options{ServiceBus: &entities})
	w := &world{
		T: t, settings: s, stack: servers, seeds: seeds(t), rec: history.NewRecorder(),
	}
	w.run.SessionKey = s.SessionKey
	// In real time a message that was sent in time and arrived late cannot be distinguished from
	// one that was sent too late.
	w.run.Late = func(string, time.Time) bool { return true }
	w.mongo, w.real = stack.MongoDB(t, servers)
	for _, stream := range w.streams() {
		w.leases = append(w.leases, leasecheck.NewRecorder(container+"/"+stream+".json"))
	}
	servers.ServiceBus.Observe(func(a servicebus.Accepted) {
		w.rec.Accept(witness.Accepted(a))
		w.checkpoints.Accepted.Add(1)
	})
	var err error
	w.client, err = driver.Connect(options.Client().ApplyURI(w.mongo))
	require.NoError(t, err)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(t.Context()))
	opened := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		if err := witness.Watch(watching, w.collection(s.Projection), func() { close(opened) }, w.observe); err != nil {
			t.Error(err)
		}
	})
	<-opened
	defer func() {
		stopWatching()
		watcher.Wait()
		_ = w.client.Disconnect(context.WithoutCancel(t.Context()))
	}()
	for _, c := range w.producing("server:5672", "server:10000") {
		require.NoError(t, c.Validate())
	}
	defer w.judge() // also a run that failed
	defer w.stopAll()
	f(w)
}

// seeds returns the source of all randomness in a test. The timing of events still depends on real
// time.
func seeds(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// random returns another source of randomness.
func (w *world) random() *rand.Rand { return rand.New(rand.NewPCG(w.seeds.Uint64(), 0)) }

// streams returns the names of the streams.
func (w *world) streams() (names []string) {
	for _, collection := range w.settings.Collections {
		names = append(names, database+"."+collection)
	}
	return names
}

func (w *world) collection(name string) *driver.Collection {
	return w.client.Database(readModel).Collection(name)
}

// trace logs a step, for debugging a failure.
func (w *world) trace(format string, args ...any) {
	w.Helper()
	w.Logf("%s  %s", time.Now().Format("05.000"), fmt.Sprintf(format, args...))
}

// until polls for a condition that no event announces.
func (w *world) until(what string, so func() bool) {
	w.Helper()
	tick := time.NewTicker(grain)
	defer tick.Stop()
	for end := time.Now().Add(patience); !so(); <-tick.C {
		if time.Now().After(end) {
			w.unrest(what)
			w.Fatalf("not in %s: %s; %s\n%s", patience, what, w.counts(), w.logs())
		}
	}
}

// flow commits events until a condition is met.
func (w *world) flow(what string, so func() bool) {
	w.Helper()
	w.flowing.Store(true)
	defer w.flowing.Store(false)
	w.until(what, so)
}

// logs returns the logs of the running services.
func (w *world) logs() string {
	var all strings.Builder
	for _, s := range w.services {
		if s.now != nil {
			fmt.Fprintf(&all, "%s:\n%s", s.now.name, s.now.log)
		}
	}
	return all.String()
}

// moveOn waits until everything that is committed by now is visible, while the events of another
// step are being committed.
func (w *world) moveOn() {
	w.Helper()
	due := w.due()
	w.steps.Add(1)
	w.until("what was committed is visible", func() bool { return w.shows(due) })
}

// rest waits until all work is done.
func (w *world) rest() {
	w.Helper()
	w.enough.Store(true)
	w.outside.Wait()
	w.moveOn()
	w.until("every event is published and every message is settled", func() bool {
		counts := w.rec.Counts()
		return counts.Published >= counts.Committed && w.stats().Active == 0
	})
}

// stats returns the broker's statistics of the entity that the projectors receive from.
func (w *world) stats() servicebus.Stats { return w.stack.ServiceBus.Stats(w.stack.Route.Out()) }

// stopAll asks every service to stop and joins all instances that ever ran.
func (w *world) stopAll() {
	w.enough.Store(true)
	w.outside.Wait()
	var running []*instance
	for _, s := range w.services {
		if s.now != nil {
			running = append(running, s.now)
			s.now.ask()
			s.now = nil
		}
	}
	for _, i := range running {
		i.joined()
		if i.err != nil {
			w.Errorf("%s was asked to stop and ended with: %v", i.name, i.err)
		}
	}
	for _, s := range w.services {
		for _, i := range s.gone {
			i.joined()
			running = append(running, i)
		}
	}
	for _, i := range running {
		i.cut()
	}
	w.networks.Wait()
	w.scraping.Wait()
}

func TestMain(m *testing.M) {
	// The tests wait more than they compute: all run at once, whatever the number of processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := withCollector(m.Run)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "a goroutine has not ended with the tests:", err)
		code = 1
	}
	os.Exit(code)
}
