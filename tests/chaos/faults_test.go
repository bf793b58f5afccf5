package chaos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// fault is what servers do to single aggregates, messages or transactions, and what it needs of its ring. The ring has the projectors killed
// while it lasts; in the end it is over, and what was set aside is replayed by the operator's command, which is killed as well.
type fault struct {
	name string
	// own has the projectors be a program of their own, which writes in transactions; else they keep timelines.
	own bool
	// shared has two streams carry the same aggregates, and two producers.
	shared bool
	// silent keeps from Service Bus that a projector is gone, as the loss of its machine does: the locks run out.
	silent bool
	// memory is how many bytes a projector may have in memory; 0: any number.
	memory int64
	// bucket is how many sessions the aggregates share; 0: each has its own.
	bucket int
	// rate is that of the load, events a second; 0: 15. data is what each of its events has; nil: what an order has.
	rate  float64
	data  []byte
	topic func(*servicebus.Topic)
	// producer and projector are their settings, KEY=VALUE; by the seed of the ring.
	producer, projector func(seed uint64) []string
	// usesUp is what is known of a ring in which the broker dead-letters by itself; nil: it does not.
	usesUp func(seed uint64) *checker.UsedUp
	// begin starts what lasts for all rounds.
	begin func(*ring)
	// round brings the fault about once, of the aggregates that it makes.
	round func(ctx context.Context, r *ring, n int) error
	// met says what was not met that should have been; the ring would prove nothing.
	met func(*ring) error
}

// faults are all of them.
var faults = []fault{usedUp, refusedDocuments, largeTransactions, largeBodies, sharedAggregates, partitionedLetters}

// TestG1G2G3G5OfProcessesWhoseServersRefuse has the servers do what they do in production to some events and not to others, while
// projectors are killed: what cannot be applied parks its aggregate and nothing else, and replayed by the real command every event has its effect, once and in
// order. CHAOS_ROUNDS is how many times, CHAOS_RINGS in how many pipelines side by side, CHAOS_FAULT names the faults that are wanted.
func TestG1G2G3G5OfProcessesWhoseServersRefuse(t *testing.T) {
	t.Parallel()
	var wanted []fault
	for _, f := range faults {
		if strings.Contains(f.name, os.Getenv("CHAOS_FAULT")) {
			wanted = append(wanted, f)
		}
	}
	require.NotEmpty(t, wanted, "CHAOS_FAULT: no fault is called so")
	rounds := max(setting(t, "CHAOS_ROUNDS", 0), len(wanted))
	rings := min(max(setting(t, "CHAOS_RINGS", 0), len(wanted)), rounds)
	seed := uint64(setting(t, "CHAOS_SEED", 1))
	producer, projector, azuriteAddr := programs(t)
	seen := &faultReport{}
	t.Cleanup(func() { t.Logf("seed %d: %v", seed, seen) })
	for n := range rings {
		f := wanted[n%len(wanted)]
		t.Run(fmt.Sprintf("%s %d", f.name, n+1), func(t *testing.T) {
			t.Parallel()
			o := ringOptions{
				name: fmt.Sprintf("fault-%d", n+1), rate: cmp.Or(f.rate, 15), fault: &f, producer: producer, projector: projector, blobURL: azuriteAddr, times: calm,
				// Both receivers come to each fault.
				seed: seed*100 + uint64(n+n/len(wanted)*((len(wanted)+1)%2)),
			}
			if f.shared {
				o.times = quick // its producers are killed
			}
			if f.own {
				o.projector = ownProjectorProgram(t)
			}
			made := 0
			r, run := inRing(t, o, func(ctx context.Context, r *ring) error {
				if f.begin != nil {
					f.begin(r)
				}
				for ; n+made*rings < rounds; made++ {
					if err := r.flows(ctx); err != nil {
						return err
					}
					r.trace.add("round %d", made+1)
					if err := f.round(ctx, r, made); err != nil {
						return fmt.Errorf("round %d of %s: %w", made+1, o.name, err)
					}
				}
				return nil
			})
			seen.judged(f.name, made, r, run)
			for _, violation := range checker.Judge(run) {
				t.Error(violation)
			}
			if f.met != nil {
				require.NoError(t, f.met(r))
			}
			require.NoError(t, r.faulty.fits(f.memory))
		})
	}
}

// flows waits until every service answers, every stream is led, and what was published some time ago is applied or set aside.
func (r *ring) flows(ctx context.Context) error {
	began := r.rec.Counts().Committed
	return r.until(ctx, "all services answer, every stream is led, and events flow", func() bool {
		for _, s := range r.slots() {
			if _, fresh := s.Status(); !fresh {
				return false
			}
		}
		for _, stream := range r.options.streams() {
			if !r.led("shop." + stream) {
				return false
			}
		}
		stats := r.stack.ServiceBus.Stats(r.stack.Route.Out())
		return int64(stats.Completed+stats.DeadLettered) >= began
	})
}

// led says whether a producer leads the stream.
func (r *ring) led(stream string) bool {
	for _, p := range r.producers {
		if status, fresh := p.Status(); fresh && (status.Leads() || status.LeadsStream(stream)) {
			return true
		}
	}
	return false
}

// killAt kills the projector that sends something, while that is on its way: late says that it arrives nevertheless. It answers false
// where nobody did before it was over.
func (r *ring) killAt(ctx context.Context, what string, is func(wire.Unit) bool, late bool, over func() bool) (killed bool, err error) {
	trap := wire.NewTrap(is)
	for _, p := range r.projectors {
		p.way.Arm(trap)
	}
	defer func() {
		trap.Release(late)
		for _, p := range r.projectors {
			p.way.Arm(nil)
		}
	}()
	sprung := func() bool { return trap.By() != nil }
	if err := r.until(ctx, what, func() bool { return sprung() || over() }); err != nil {
		return false, err
	}
	if !sprung() {
		return false, nil
	}
	for _, p := range r.projectors {
		if p.way != trap.By() {
			continue
		}
		r.faulty.measure(r)
		instance, err := p.Signal(syscall.SIGKILL)
		if errors.Is(err, os.ErrProcessDone) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		r.faulty.kills.Add(1)
		r.trace.add("SIGKILL to %s: %s", instance, what)
	}
	return true, nil
}

// writes are the writes of a projector that are about this.
func writes(text string) func(wire.Unit) bool {
	return func(u wire.Unit) bool { return isApply(u) && !u.Reply && bytes.Contains(u.Message, []byte(text)) }
}

// killProjectors kills all of them, so that what comes meanwhile waits for them.
func (r *ring) killProjectors() error {
	r.faulty.measure(r)
	for _, p := range r.projectors {
		if _, err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		r.faulty.kills.Add(1)
	}
	r.trace.add("SIGKILL to every projector")
	return nil
}

// setAside is how many messages of an aggregate are in the dead-letter queue.
func (r *ring) setAside(aggregate string) (n int64) {
	for _, m := range r.stack.ServiceBus.PeekDeadLetters(r.stack.Route.Out(), everything) {
		if m.SessionID == aggregate {
			n++
		}
	}
	return n
}

// faultReport counts over all rings.
type faultReport struct {
	report

	counting sync.Mutex // guards everything below
	faults   tally      // rounds
	reasons  tally      // of dead letters
	kills    int64
	refused  int64
	replays, killedReplays,
	lookedAt, abandoned int
	partitions int
	peak       int64
}

func (r *faultReport) judged(name string, rounds int, of *ring, run checker.Run) {
	r.report.judged(of)
	f := of.faulty
	r.counting.Lock()
	defer r.counting.Unlock()
	for range rounds {
		r.faults.add(name)
	}
	for _, m := range run.Aside {
		r.reasons.add(m.Reason)
	}
	r.kills += f.kills.Load()
	r.refused += f.refused.Load()
	r.replays += f.replays
	r.killedReplays += f.killed
	r.peak = max(r.peak, f.peak.Load())
	r.partitions = max(r.partitions, f.partitions)
	if run.UsedUp != nil {
		r.lookedAt += run.UsedUp.Judged()
		r.abandoned += len(run.UsedUp.Abandoned)
	}
}

func (r *faultReport) String() string {
	counts := r.counts()
	r.counting.Lock()
	defer r.counting.Unlock()
	return fmt.Sprintf("%s\n%d projectors killed, %d writes refused, %d replays of which %d were killed, %d events that a person looked at and %d given up, letters of %d partitions, at most %d MiB in a projector\nrounds\n%sset aside\n%s",
		counts, r.kills, r.refused, r.replays, r.killedReplays, r.lookedAt, r.abandoned, r.partitions, r.peak>>20, &r.faults, &r.reasons)
}

// everything is more messages than there ever are.
const everything = 1 << 20
