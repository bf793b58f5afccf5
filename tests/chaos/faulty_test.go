package chaos

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/chaos/internal/memory"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/ledger"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// faulty is what a ring has whose servers refuse.
type faulty struct {
	random  *rand.Rand // of the rounds
	streams []*driver.Collection
	boxes   []*memory.Group // of the projectors

	kills, refused, peak atomic.Int64

	mu      sync.Mutex  // guards journal and run while events come
	journal []entry     // in the order in which they were recorded
	run     checker.Run // what is known beside the histories
	ends    []func()    // end what lasts
	tired   []string    // aggregates whose event was being applied in every delivery that there was

	replays, killed, partitions int
}

// entry is a committed event.
type entry struct {
	history.Commit
	kind, occurredAt string
}

func newFaulty(client *driver.Client, o ringOptions) *faulty {
	f := &faulty{random: rand.New(rand.NewPCG(o.seed, 0xfa))}
	if o.fault.usesUp != nil {
		f.run.UsedUp = o.fault.usesUp(o.seed)
	}
	for _, name := range o.streams() {
		f.streams = append(f.streams, client.Database("shop").Collection(name))
	}
	return f
}

// sending records what is written to a stream just before it is.
func (f *faulty) sending(r *ring, stream int) func([]workload.Event, time.Time) {
	name := ""
	if len(f.streams) > 1 {
		name = "shop." + f.streams[stream].Name()
	}
	return func(batch []workload.Event, at time.Time) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range batch {
			c := history.Commit{Stream: name, Aggregate: e.AggregateID, Version: e.Version, At: at}
			f.journal = append(f.journal, entry{c, e.Type, e.OccurredAt})
			r.rec.Commit(c)
		}
	}
}

// load inserts events of the shop into every stream, of the same aggregates, until the rounds are over.
func (f *faulty) load(ctx context.Context, r *ring) error {
	loading, ctx := errgroup.WithContext(ctx)
	for n, collection := range f.streams {
		var events iter.Seq[workload.Event] = func(yield func(workload.Event) bool) {
			for e := range workload.Orders(r.options.seed) {
				e.Type = f.kind(e.Type, e.Version)
				if data := r.options.fault.data; data != nil {
					e.Data = data
				}
				if r.loadingOver.Load() || !yield(e) {
					return
				}
			}
		}
		loader := r.loader(collection, r.options.rate/float64(len(f.streams)), f.sending(r, n))
		loading.Go(func() error {
			_, err := loader.Run(ctx, events)
			return err
		})
	}
	return loading.Wait()
}

// kind is the type of an event: each version has its own, so that the read model tells which of them it holds.
func (f *faulty) kind(of string, version int64) string {
	if f.run.UsedUp == nil {
		return of
	}
	return fmt.Sprintf("%s-%d", of, version)
}

// life are events of one aggregate, as large as data makes them; the one behind the first few is of a kind of its own.
func (f *faulty) life(aggregate string, total, before int64, special string, data []byte) (all []workload.Event) {
	for version := int64(1); version <= total; version++ {
		kind := "Fine"
		if version == before+1 {
			kind = special
		}
		all = append(all, workload.Event{
			AggregateID: aggregate, Version: version, Type: f.kind(kind, version), OccurredAt: fmt.Sprintf("2026-01-05T08:00:%02dZ", version%60), Data: data,
		})
	}
	return all
}

// commit inserts events into a stream, in this order.
func (f *faulty) commit(ctx context.Context, r *ring, stream int, events []workload.Event) error {
	_, err := workload.Loader{Collection: f.streams[stream], Sending: f.sending(r, stream)}.Run(ctx, slices.Values(events))
	return err
}

// lasting remembers how something that lasts until all else is at rest is ended.
func (f *faulty) lasting(end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = append(f.ends, end)
}

// sicken announces an aggregate that is to be parked.
func (f *faulty) sicken(s checker.Sick) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run.Sick = append(f.run.Sick, s)
}

// boxed is the command by which a projector is started with no more memory than it may have, where the system can see to that.
func (f *faulty) boxed(r *ring) ([]string, error) {
	limit := r.options.fault.memory
	if limit == 0 {
		return nil, nil
	}
	box, err := memory.Limit(fmt.Sprintf("sluice-%s-%d", r.options.name, len(f.boxes)), limit)
	if errors.Is(err, memory.ErrUnavailable) {
		return nil, nil // what it has is measured all the same
	}
	if err != nil {
		return nil, err
	}
	f.boxes = append(f.boxes, box)
	r.Cleanup(func() { require.NoError(r, box.Close()) })
	return box.Enter(), nil
}

// measure looks how much memory the projectors have had so far.
func (f *faulty) measure(r *ring) {
	for _, p := range r.projectors {
		if pid, ok := p.PID(); ok {
			f.peak.Store(max(f.peak.Load(), memory.Peak(pid)))
		}
	}
}

// known is the run so far: what has happened, and what is known of it.
func (f *faulty) known(r *ring) checker.Run {
	f.mu.Lock()
	defer f.mu.Unlock()
	run := f.run
	run.History = r.rec.History()
	if n := r.options.fault.bucket; n > 0 {
		run.SessionKey = envelope.Buckets(n)
	}
	return run
}

// fold is the read model of what is to be seen, and how many events there are of each type.
func (f *faulty) fold(run checker.Run) (timelines, totals *history.Model) {
	timelines, totals = &history.Model{}, &history.Model{}
	visible, rank, counts := run.Visible(), run.Ranks(), map[string]int64{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.journal {
		if visible(e.Commit) {
			timelines.Fold(e.Aggregate, rank(e.Commit), e.kind, e.occurredAt)
			counts[e.kind]++
		}
	}
	for kind, n := range counts {
		totals.Put(kind, history.Summary{Events: n})
	}
	return timelines, totals
}

// kindOf is the type of a committed event.
func (f *faulty) kindOf(aggregate string, version int64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.journal {
		if e.Aggregate == aggregate && e.Version == version {
			return e.kind
		}
	}
	return ""
}

// mend waits until all is applied or set aside, records that, ends what lasts, and replays what was set aside.
func (r *ring) mend(ctx context.Context) error {
	f, bus, path := r.faulty, r.stack.ServiceBus, r.stack.Route.Out()
	var held *history.Model
	err := r.until(ctx, "everything is published, and applied or set aside", func() bool {
		counts := r.rec.Counts()
		if counts.Published != counts.Committed || bus.Stats(path).Active > 0 {
			return false
		}
		model, err := witness.ReadTimeline(ctx, r.model)
		held = model
		return err == nil && model.Events() == counts.Visible
	})
	f.measure(r)
	if err != nil {
		return err
	}
	f.run.Aside = r.aside(everything)
	partitions := map[int64]bool{}
	for _, m := range bus.PeekDeadLetters(path, everything) {
		partitions[m.SequenceNumber>>partitionShift] = true
	}
	f.partitions = len(partitions)
	f.run.ObservedBefore = len(r.rec.History().Observed)
	f.run.ActualBefore = held
	f.run.ExpectedBefore, _ = f.fold(f.known(r))
	if u := f.run.UsedUp; u != nil {
		u.Held, u.AtRest, u.Type = held, f.tired, f.kindOf
		f.run.ActualBefore = nil // nobody knows beforehand what is parked
	}
	for _, end := range f.ends {
		end()
	}
	if len(f.run.Aside) > 0 {
		if err := r.replayAll(ctx); err != nil {
			return err
		}
	}
	return r.until(ctx, "everything is in the read model, and nothing is left", func() bool {
		given := int64(0)
		if f.run.UsedUp != nil {
			given = int64(len(f.run.UsedUp.Abandoned))
		}
		counts := r.rec.Counts()
		return counts.Visible == counts.Committed-given && bus.Stats(path).Active == 0
	})
}

// partitionShift: a sequence number carries its partition in the upper 16 bits.
const partitionShift = 48

// replayAll has the operator replay what is set aside, on a way of its own, on which the command is killed first.
func (r *ring) replayAll(ctx context.Context) error {
	f := r.faulty
	way, err := wire.Listen(ctx, "operator", r.projectors[0].way.To(), wire.Loopback, &r.checkpoints, nil)
	if err != nil {
		return err
	}
	walking, stop := context.WithCancel(ctx)
	var walk errgroup.Group
	walk.Go(func() error { return way.Run(walking) })
	defer func() {
		stop()
		_ = walk.Wait() // what went wrong there, the command has said
	}()
	env := r.operatorsEnv(way)
	if err := r.killReplay(ctx, way, env); err != nil {
		return err
	}
	said := ""
	for end := time.Now().Add(patience); time.Now().Before(end); {
		var code int
		if code, said, err = child.Command(ctx, env, r.options.projector, "parked", "replay", "--all"); err != nil {
			return err
		}
		f.replays++
		r.trace.add("projector parked replay --all: exit code %d\n%s", code, said)
		if code == commandline.ExitOK && len(r.aside(1)) == 0 {
			return nil
		}
		looked, err := r.lookAtOvertaken(ctx, env)
		if err != nil {
			return err
		}
		if !looked { // a message may be locked by the command that was killed, or a session held
			if err := retry.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("wait in %s until everything is replayed: not in %s; the command said\n%s", r.options.name, patience, said)
}

// operatorsEnv are the settings of a projector, with a way of its own.
func (r *ring) operatorsEnv(way *wire.Way) []string {
	addrs := way.Addrs()
	return append(slices.Clone(r.projectors[0].Env), emulator.EnvMongo+"=mongodb://"+addrs.Mongo+"/?directConnection=true",
		emulator.EnvServiceBus+"="+servicebus.ConnectionString(addrs.ServiceBus))
}

// killReplay kills a replay while a write of it, its answer, or the removal of a dead letter is on its way.
func (r *ring) killReplay(ctx context.Context, way *wire.Way, env []string) error {
	f := r.faulty
	at := []func(wire.Unit) bool{
		func(u wire.Unit) bool { return isApply(u) && !u.Reply },
		func(u wire.Unit) bool { return isApply(u) && u.Reply },
		request(wire.ServiceBus, "disposition"),
	}[f.random.IntN(3)]
	skip := f.random.IntN(4) // the first ones pass
	trap := wire.NewTrap(func(u wire.Unit) bool {
		if !at(u) {
			return false
		}
		skip--
		return skip < 0
	})
	way.Arm(trap)
	defer way.Arm(nil)
	killing, kill := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-trap.Sprung():
			kill()
		case <-killing.Done():
		}
	})
	code, _, err := child.Command(killing, env, r.options.projector, "parked", "replay", "--all")
	kill()
	waiting.Wait()
	trap.Release(f.random.IntN(2) == 0)
	f.replays++
	if trap.By() != nil {
		f.killed++
	}
	r.trace.add("projector parked replay --all, killed on the way: %v, exit code %d", trap.By() != nil, code)
	return err
}

// lookAtOvertaken has a person look at the events of which nobody knows whether they were applied, and drop them.
func (r *ring) lookAtOvertaken(ctx context.Context, env []string) (any bool, err error) {
	f := r.faulty
	cursor, err := r.model.Find(ctx, bson.D{{Key: projection.GuardField + ".parked.reason", Value: "Overtaken"}})
	if err != nil {
		return false, err
	}
	var found []bson.Raw
	if err := cursor.All(ctx, &found); err != nil {
		return false, err
	}
	if len(found) > 0 && f.run.UsedUp == nil {
		return false, fmt.Errorf("overtaken in %s: %s", r.options.name, found)
	}
	for _, document := range found {
		aggregate, _ := document.Lookup("_id").StringValueOK()
		message, _ := document.Lookup(projection.GuardField, "parked", "messageId").StringValueOK()
		if !slices.ContainsFunc(r.aside(everything), func(m checker.Aside) bool { return m.MessageID == message }) {
			return false, fmt.Errorf("the only copy of message %s of %s is gone from the dead-letter queue", message, aggregate)
		}
		held, err := witness.ReadTimeline(ctx, r.model)
		if err != nil {
			return false, err
		}
		version := f.known(r).VersionOf(message)
		applied := checker.Holds(held, aggregate, f.kindOf(aggregate, version)) > 0
		f.run.UsedUp.Judge(aggregate, version, applied)
		code, said, err := child.Command(ctx, env, r.options.projector, "parked", "drop", aggregate, "--yes")
		r.trace.add("a person looks at version %d of %s, applied: %v; projector parked drop: exit code %d\n%s", version, aggregate, applied, code, said)
		if err != nil {
			return false, err
		}
	}
	return len(found) > 0, nil
}

// outcome is everything recorded, after the services have ended.
func (f *faulty) outcome(r *ring, run checker.Run) checker.Run {
	judged := f.known(r)
	judged.Writes, judged.Lease, judged.FenceAfter, judged.Late = run.Writes, run.Lease, run.FenceAfter, run.Late
	judged.Left, judged.Replayed = r.aside(everything), true
	var err error
	judged.Actual, err = witness.ReadTimeline(r.Context(), r.model)
	require.NoError(r, err)
	var totals *history.Model
	judged.Expected, totals = f.fold(judged)
	if r.options.fault.own {
		judged.ExpectedTotals = totals
		judged.ActualTotals, err = ledger.ReadTotals(r.Context(), r.model.Database(), "")
		require.NoError(r, err)
	}
	return judged
}

// fits says whether the projectors had enough memory.
func (f *faulty) fits(limit int64) (err error) {
	for _, box := range f.boxes {
		killed, unread := box.Killed()
		if killed > 0 {
			unread = fmt.Errorf("a projector was killed %d times because it needed more than %d bytes", killed, limit)
		}
		err = errors.Join(err, unread)
	}
	if peak := f.peak.Load(); limit > 0 && peak > limit {
		err = errors.Join(err, fmt.Errorf("a projector had %d bytes in memory, and may have %d", peak, limit))
	}
	return err
}
