package chaos

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// ringOptions are the differences between rings.
type ringOptions struct {
	services
	name      string
	seed      uint64
	rate      float64       // events a second
	times     []string      // settings of the leadership, KEY=VALUE
	documents *reading      // nil: a log of events and its timeline; otherwise documents that change, and their mirror
	latency   time.Duration // a round trip to MongoDB and Service Bus
	inMongo   bool          // the checkpoint is in MongoDB instead of Blob storage
	// program has each projector call a program of its own, which is the projection.
	program bool
	// apart gives every service a network namespace of its own, and a cable from there to the
	// servers.
	apart bool
	// fenceAfter is how long a leader may send after a write of its checkpoint; if it is zero, the
	// fence is not judged.
	fenceAfter time.Duration
}

// receiver returns how the ring's projectors accept sessions: directly, or in every other ring
// through the SDK.
func (o ringOptions) receiver() string { return []string{"direct", "sdk"}[o.seed%2] }

// packs reports whether the ring's producers send packs, in few sessions, so that many events wait
// for the same one: in two of four rings.
func (o ringOptions) packs() bool { return o.seed/2%2 == 1 }

// sessionKey returns what determines the session of a message.
func (o ringOptions) sessionKey() envelope.SessionKey {
	if o.packs() {
		return envelope.Buckets(4)
	}
	return envelope.SessionKey{}
}

// collection returns the name of the watched collection.
func (o ringOptions) collection() string {
	if o.documents != nil {
		return "documents"
	}
	return "events"
}

// projection returns the name of the projection.
func (o ringOptions) projection() string {
	if o.documents != nil {
		return "mirror"
	}
	return "timeline"
}

// entities returns the entities of the ring's Service Bus.
func (o ringOptions) entities() *servicebus.Config {
	c := emulator.Entities()
	topic := &c.Topics[0]
	topic.DuplicateDetectionWindow = duplicateWindow
	topic.Subscriptions[0].LockDuration = lockDuration
	return &c
}

// ring is one pipeline: servers of its own except Azurite, two producers and two projectors as
// processes, each with a network of its own, and a workload that never pauses.
type ring struct {
	*testing.T
	options ringOptions
	stack   *emulator.Stack
	events  *driver.Collection
	model   *driver.Collection
	// documents is nil if the source is a log of events.
	documents *documents
	trace     *trace

	producers, projectors []*slot
	programs              []*child.Slot // of the projectors, if the projection is one

	rec         *history.Recorder
	checkpoints wire.Checkpoints
	lease       *leasecheck.Recorder // of the checkpoint
	loadingOver atomic.Bool
	packs       atomic.Int64 // that the broker accepted
}

// trace records what happens in a ring, for debugging a failure.
type trace struct {
	began time.Time
	mu    sync.Mutex
	text  strings.Builder // guarded by mu
}

func (t *trace) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(&t.text, "%9.3fs  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

const (
	// lockDuration and duplicateWindow are the shortest that Service Bus allows.
	lockDuration    = 5 * time.Second
	duplicateWindow = 20 * time.Second
	// transactionLifetime is how long the transaction of a killed projector blocks its documents.
	transactionLifetime = 5 * time.Second
	// patience bounds every wait.
	patience = 90 * time.Second
	// backlog is the time in which the load makes as many events as may be in flight.
	backlog = 10 * time.Second
	grain   = 10 * time.Millisecond
)

// inRing runs work in a ring, and judges it.
func inRing(t *testing.T, o ringOptions, work func(ctx context.Context, r *ring) error) *ring {
	t.Helper()
	defer enter()()
	s, err := emulator.New(t.Context(), emulator.Options{ServiceBus: o.entities(), Latency: o.latency, TransactionLifetime: transactionLifetime})
	require.NoError(t, err)
	r := &ring{
		T: t, options: o, stack: s, rec: history.NewRecorder(), trace: &trace{began: time.Now()},
		lease: leasecheck.NewRecorder(o.name + "/shop." + o.collection() + ".json"),
	}
	defer func() {
		t.Logf("%s\n%s", o.name, r.trace)
	}()
	s.ServiceBus.Observe(func(a servicebus.Accepted) {
		events := witness.Events(a)
		for _, e := range events {
			r.rec.Accept(witness.Accepted(e))
		}
		if len(events) > 1 {
			r.packs.Add(1)
		}
		r.checkpoints.Accepted.Add(int64(len(events)))
	})
	serving, stopServing := context.WithCancel(context.WithoutCancel(t.Context())) // the services need the servers to stop
	servers, broken := errgroup.WithContext(serving)
	defer func() {
		stopServing()
		require.NoError(t, servers.Wait())
	}()
	servers.Go(func() error { return s.Run(broken) })
	defer s.Mongo.RefuseWrites(func(w mongo.Writing) int32 { r.checkpoints.Stored(w); return 0 })()

	client, err := driver.Connect(options.Client().ApplyURI(s.Endpoint(emulator.EnvMongo)))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) }()
	r.events, r.model = client.Database("shop").Collection("events"), client.Database("readmodel").Collection(o.projection())
	if o.documents != nil {
		r.documents, err = newDocuments(t.Context(), client, o, r.rec)
		require.NoError(t, err)
		r.events, r.model = r.documents.source, r.documents.mirror
	}

	watching, stopWatching := context.WithCancel(broken)
	var watcher errgroup.Group
	defer func() {
		stopWatching()
		require.NoError(t, watcher.Wait())
	}()
	opened := make(chan struct{})
	watcher.Go(func() error { return witness.Watch(watching, r.model, func() { close(opened) }, r.observe) })
	<-opened
	require.NoError(t, r.fill(t.Context()))
	for _, place := range r.slots() {
		servers.Go(func() error { return place.proxy.Run(broken) })
		if place.cable != nil {
			servers.Go(func() error { return place.cable.Run(broken) })
		}
	}
	services, stopServices := context.WithCancel(broken)
	running, ctx := errgroup.WithContext(services)
	for _, place := range r.slots() {
		running.Go(func() error { return place.Run(ctx) })
	}
	for _, program := range r.programs {
		running.Go(func() error { return program.Run(ctx) })
	}
	err = r.drive(ctx, work)
	stopServices()
	require.NoError(t, errors.Join(err, running.Wait()), "%s:\n%s", o.name, r.complaints())
	for _, violation := range checker.Judge(r.outcome()) {
		t.Error(violation)
	}
	return r
}

// drive feeds the pipeline while work runs, and waits until every event is visible.
func (r *ring) drive(ctx context.Context, work func(ctx context.Context, r *ring) error) error {
	if _, err := r.ready(ctx); err != nil {
		return err
	}
	if r.options.packs() {
		if err := r.confirmPacks(ctx); err != nil {
			return err
		}
	}
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return r.load(both) })
	group.Go(func() error {
		defer r.loadingOver.Store(true)
		return work(both, r)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if r.documents != nil {
		return r.judge(ctx)
	}
	return r.until(ctx, "everything is in the read model and settled", func() bool {
		counts := r.rec.Counts()
		return counts.Visible == counts.Committed && r.stack.ServiceBus.Stats(r.stack.Route.Out()).Active == 0
	})
}

// confirmPacks runs the command by which an operator confirms that readers know packs.
func (r *ring) confirmPacks(ctx context.Context) error {
	place := r.producers[0]
	command := slices.Concat(place.Enter, []string{place.Program, "packs", "on", "--readers-know", "--rules-checked"})
	code, output, err := child.Command(ctx, place.Env, command[0], command[1:]...)
	if err == nil && code != 0 {
		err = fmt.Errorf("producer packs on: %s", output)
	}
	return err
}

func (r *ring) slots() []*slot { return slices.Concat(r.producers, r.projectors) }

// ready waits until every service answers, one leads, and everything committed so far is visible.
func (r *ring) ready(ctx context.Context) (leader *slot, err error) {
	followed := r.mark()
	err = r.until(ctx, "all services answer, one leads, and the read model has caught up", func() bool {
		for _, s := range r.slots() {
			if _, fresh := s.Status(); !fresh {
				return false
			}
		}
		of, status, leads := child.Leader(r.producers)
		leader = of
		return leads && status.Epoch == r.checkpoints.Epoch() && followed()
	})
	return leader, err
}

// mark returns a function that reports whether everything committed before the call of mark is
// visible.
func (r *ring) mark() (followed func() bool) {
	if r.documents != nil {
		return r.documents.mark()
	}
	committed := r.rec.Counts().Committed
	return func() bool { return r.rec.Counts().Visible >= committed }
}

// until polls for a condition that no event announces.
func (r *ring) until(ctx context.Context, what string, so func() bool) error {
	for end := time.Now().Add(patience); !so(); {
		if time.Now().After(end) {
			return fmt.Errorf("wait in %s until %s: not in %s; the counts are %+v, the subscription's %+v, the epoch is %d",
				r.options.name, what, patience, r.rec.Counts(), r.stack.ServiceBus.Stats(r.stack.Route.Out()), r.checkpoints.Epoch())
		}
		if err := retry.Sleep(ctx, grain); err != nil {
			return err
		}
	}
	return nil
}

// load inserts events until the work is over.
func (r *ring) load(ctx context.Context) error {
	if r.documents != nil {
		return r.documents.load(ctx, r)
	}
	var events iter.Seq[workload.Event] = func(yield func(workload.Event) bool) {
		for e := range workload.Orders(r.options.seed) {
			if r.loadingOver.Load() || !yield(e) {
				return
			}
		}
	}
	inserted := int64(0)
	_, err := workload.Loader{
		Collection: r.events, Rate: r.options.rate, Allowed: func() int64 { return inserted + r.room() },
		Sending: func(batch []workload.Event, at time.Time) {
			inserted += int64(len(batch))
			r.rec.Commit(workload.Commits(batch, at)...)
		},
	}.Run(ctx, events)
	return err
}

// room returns how many more events may be in flight. On a machine that is slower than the load
// there would be ever more of them, and each later event would wait behind all of them.
func (r *ring) room() int64 {
	counts := r.rec.Counts()
	onTheWay := counts.Committed - counts.Published + int64(r.stack.ServiceBus.Stats(r.stack.Route.Out()).Active)
	return max(0, int64(r.options.rate*backlog.Seconds())-onTheWay)
}

// observe records a change of the read model.
func (r *ring) observe(change bson.Raw, at time.Time) {
	if r.documents != nil {
		r.documents.observe(change)
		return
	}
	if o, ok := witness.Timeline(change, at); ok {
		r.rec.Observe(o)
	}
}

// outcome returns everything recorded, after the services have ended.
func (r *ring) outcome() checker.Run {
	run := checker.Run{
		History: r.rec.History(), Writes: r.checkpoints.All(), FenceAfter: r.options.fenceAfter, Late: r.mayBeLate,
		Lease: leasecheck.Check(r.lease.History(), patience),
	}
	if len(run.Writes) == 0 {
		r.Error("no checkpoint was seen")
	}
	run.SessionKey = r.options.sessionKey()
	for _, m := range r.stack.ServiceBus.PeekDeadLetters(r.stack.Route.Out(), 10) {
		run.Aside = append(run.Aside, checker.Aside{MessageID: m.MessageID, Session: m.SessionID, Reason: m.Reason, Description: m.Description})
	}
	if r.documents != nil {
		return run // the mirror has been judged
	}
	var err error
	run.Expected, err = workload.Timeline(r.Context(), r.events)
	require.NoError(r, err)
	run.Actual, err = witness.ReadTimeline(r.Context(), r.model)
	require.NoError(r, err)
	return run
}

// complaints returns the last warnings and errors in the services' logs.
func (r *ring) complaints() string {
	var b strings.Builder
	for _, s := range r.slots() {
		for _, line := range s.Worst() {
			fmt.Fprintf(&b, "    %s: %s\n", s.Name, line)
		}
	}
	return b.String()
}
