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
	// maxDeliveries is the deployment's: locks that are lost again and again park nothing.
	maxDeliveries = 1000
	// patience bounds every wait for what must come about by itself: it is for machines that are very busy.
	patience = 2 * time.Minute
	grain    = 5 * time.Millisecond
)

// settings are what the tests vary.
type settings struct {
	// Collections are watched, a stream each.
	Collections []string
	// Projection is what the projectors run, of Projections unless nil.
	Projection            string
	Projections           *projection.Registry
	SessionKey            envelope.SessionKey
	Claims                bool // large events are taken
	Lanes                 int  // of a stream
	Sessions, Connections int  // of a projector
}

// world is the servers over TCP, what is recorded of them, and the services that run.
type world struct {
	*testing.T
	settings settings
	stack    *emulator.Stack
	mongo    string         // the connection string of MongoDB
	real     bool           // which is a real one
	client   *driver.Client // the test's own, past every network
	leases   []*leasecheck.Recorder

	// services, their instances and seeds are of the test's goroutine alone.
	services []*service
	seeds    *rand.Rand
	scraping sync.WaitGroup // looks at instances until they end
	steps    atomic.Int64   // of events to be committed
	flowing  atomic.Bool    // events are committed whatever the steps are
	enough   atomic.Bool    // ends what is outside
	outside  sync.WaitGroup // commits events and gives commands

	checkpoints wire.Checkpoints
	networks    sync.WaitGroup // of the instances
	*records
}

// inWorld runs f with the servers up, and judges what was recorded.
func inWorld(t *testing.T, s settings, f func(w *world)) {
	t.Helper()
	entities := emulator.Entities()
	entities.Topics[0].DuplicateDetectionWindow = duplicateWindow
	entities.Topics[0].Subscriptions[0].LockDuration, entities.Topics[0].Subscriptions[0].MaxDeliveryCount = lockDuration, maxDeliveries
	servers, err := emulator.New(t.Context(), emulator.Options{ServiceBus: &entities})
	require.NoError(t, err)
	w := &world{
		T: t, settings: s, stack: servers, seeds: seeds(t), records: newRecords(s),
	}
	w.mongo, w.real = stack.MongoDB(t, servers)
	for _, stream := range w.streams() {
		w.leases = append(w.leases, leasecheck.NewRecorder(container+"/"+stream+".json"))
	}
	servers.ServiceBus.Observe(func(a servicebus.Accepted) {
		w.rec.Accept(witness.Accepted(a))
		w.checkpoints.Accepted.Add(1)
	})
	serving, stopServing := context.WithCancel(context.WithoutCancel(t.Context())) // the servers outlive the services
	var running sync.WaitGroup
	running.Go(func() {
		if err := servers.Run(serving); err != nil {
			t.Errorf("run the servers: %v", err)
		}
	})
	t.Cleanup(func() { stopServing(); running.Wait() })
	w.client, err = driver.Connect(options.Client().ApplyURI(w.mongo))
	require.NoError(t, err)
	watching, stopWatching := context.WithCancel(serving)
	opened := make(chan struct{})
	running.Go(func() { w.watch(watching, sync.OnceFunc(func() { close(opened) })) })
	<-opened
	defer func() {
		stopWatching()
		_ = w.client.Disconnect(serving)
	}()
	for _, c := range w.producing("server:5672", "server:10000") {
		require.NoError(t, c.Validate())
	}
	defer w.judge() // also what did not come to its end
	defer w.stopAll()
	f(w)
}

// seeds is where all chance of a test comes from. When what happens is a matter of real time.
func seeds(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// random is one more source of chance.
func (w *world) random() *rand.Rand { return rand.New(rand.NewPCG(w.seeds.Uint64(), 0)) }

// streams are the names of the streams.
func (w *world) streams() (names []string) {
	for _, collection := range w.settings.Collections {
		names = append(names, database+"."+collection)
	}
	return names
}

func (w *world) collection(name string) *driver.Collection {
	return w.client.Database(readModel).Collection(name)
}

// tell says what happens, for whoever has to understand a failure.
func (w *world) tell(format string, args ...any) {
	w.Helper()
	w.Logf("%s  %s", time.Now().Format("05.000"), fmt.Sprintf(format, args...))
}

// until polls for what no event announces.
func (w *world) until(what string, so func() bool) {
	w.Helper()
	if !w.comes(so) {
		w.unrest(what)
		w.Fatalf("not in %s: %s; %s\n%s", patience, what, w.counts(), w.logs())
	}
}

// flow has events committed until something comes about.
func (w *world) flow(what string, so func() bool) {
	w.Helper()
	w.flowing.Store(true)
	defer w.flowing.Store(false)
	w.until(what, so)
}

// logs are what the services that run have said.
func (w *world) logs() string {
	var all strings.Builder
	for _, s := range w.services {
		if s.now != nil {
			fmt.Fprintf(&all, "%s:\n%s", s.now.name, s.now.log)
		}
	}
	return all.String()
}

// comes says whether it comes about.
func (w *world) comes(so func() bool) bool {
	tick := time.NewTicker(grain)
	defer tick.Stop()
	for end := time.Now().Add(patience); !so(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// moveOn waits until everything that is committed by now is visible, with the events of another step on their way.
func (w *world) moveOn() {
	w.Helper()
	due := w.due()
	w.steps.Add(1)
	w.until("what was committed is visible", func() bool { return w.shows(due) })
}

// rest waits until nothing is left to be done.
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

// stats are the broker's, of what the projectors receive from.
func (w *world) stats() servicebus.Stats { return w.stack.ServiceBus.Stats(w.stack.Route.Out()) }

// stopAll asks every service to stop and joins all there ever were.
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
	// The tests wait more than they work: all of them at once, whatever the number of processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := withCollector(m.Run)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "something has not ended with the tests:", err)
		code = 1
	}
	os.Exit(code)
}
