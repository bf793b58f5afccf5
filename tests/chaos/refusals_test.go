package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// deliveries is how often Service Bus delivers a message where they are used up.
const deliveries = 4

// usedUp has an event end whoever applies it, as a machine ends that has no memory left, until its aggregate is parked. In every other
// round the broker takes an event out by itself, and a projector is killed with what is behind it in hand. In every other ring no version
// tells what is missing.
var usedUp = fault{
	name: "deliveries are used up", silent: true,
	topic: func(t *servicebus.Topic) { t.Subscriptions[0].MaxDeliveryCount = deliveries },
	projector: func(seed uint64) []string {
		return []string{fmt.Sprintf("MAX_DELIVERIES=%d", deliveries), "VERSION_GAP_WAIT=" + []string{"2s", "0"}[seed/2%2]}
	},
	usesUp: func(seed uint64) *checker.UsedUp { return &checker.UsedUp{Unjudged: seed/2%2 == 1} },
	round: func(ctx context.Context, r *ring, n int) error {
		if n%2 == 1 {
			return r.takeOut(ctx, fmt.Sprintf("stray-%d", n))
		}
		return r.tire(ctx, fmt.Sprintf("tired-%d", n))
	},
	met: func(r *ring) error {
		for _, m := range r.faulty.run.Aside {
			if m.Reason == checker.ReasonDeliveries {
				return nil
			}
		}
		return errors.New("no aggregate was parked for its deliveries")
	},
}

// tire lets an event of an aggregate kill every projector that applies it, until it is set aside.
func (r *ring) tire(ctx context.Context, aggregate string) error {
	f := r.faulty
	total := 2 + f.random.Int64N(6)
	before := f.random.Int64N(total)
	if err := f.commit(ctx, r, 0, f.life(aggregate, total, before, "Deadly", nil)); err != nil {
		return err
	}
	deadly := "types." + f.kind("Deadly", before+1)
	times := 0
	for {
		killed, err := r.killAt(ctx, "applying "+deadly+" of "+aggregate, func(u wire.Unit) bool {
			return writes(aggregate)(u) && writes(deadly)(u)
		}, false, func() bool { return r.setAside(aggregate) > 0 })
		if err != nil {
			return err
		}
		if !killed {
			break
		}
		times++
	}
	if times >= deliveries { // and nothing else was wrong
		f.tired = append(f.tired, aggregate)
	}
	return nil
}

// takeOut has the broker dead-letter an event by itself, as if its deliveries were used up, and kills who applies what is left.
func (r *ring) takeOut(ctx context.Context, aggregate string) error {
	f := r.faulty
	total := 2 + f.random.Int64N(6)
	before := f.random.Int64N(total)
	end, err := r.stack.ServiceBus.TakeOut(r.stack.Route.Out(), func(m servicebus.Accepted) string {
		if version, _ := m.Properties["version"].(int64); m.SessionID == aggregate && version == before+1 {
			return servicebus.UsedUp
		}
		return ""
	})
	if err != nil {
		return err
	}
	f.lasting(end)
	if err := f.commit(ctx, r, 0, f.life(aggregate, total, before, "Fine", nil)); err != nil {
		return err
	}
	published := r.rec.Counts().Committed
	_, err = r.killAt(ctx, "applying what is left of "+aggregate, writes(aggregate), f.random.IntN(2) == 0, func() bool {
		return r.rec.Counts().Published >= published && r.stack.ServiceBus.Stats(r.stack.Route.Out()).Active == 0
	})
	return err
}

// The codes with which MongoDB refuses documents: for what they are, and those that are in no table of a projector.
var (
	forGood = []int32{171, 201, 16755, 16766, 17261}
	unknown = []int32{13026, 13068, 16675, 16732, 16756, 16804}
)

// stubborn is the type of the event that is refused.
const stubborn = "Stubborn"

// refusedDocuments has MongoDB refuse every document that holds a certain event, for good with one code, and with another one until the
// projector gives up. Whoever has it in hand is killed.
var refusedDocuments = fault{
	name: "documents are refused",
	// Half of it may pass without a commit of another aggregate, which a slow machine needs.
	projector: func(uint64) []string { return []string{"UNDECIDED_AFTER=10s"} },
	round: func(ctx context.Context, r *ring, n int) error {
		name, other := fmt.Sprintf("undecided-%d", n), fmt.Sprintf("refused-%d", n)
		last, err := r.refuse(ctx, name, unknown[n%len(unknown)])
		if err != nil {
			return err
		}
		otherLast, err := r.refuse(ctx, other, forGood[n%len(forGood)])
		if err != nil {
			return err
		}
		begun := func() bool { return r.setAside(name) > 0 && r.setAside(other) > 0 }
		if _, err := r.killAt(ctx, "applying "+name, writes(name), r.faulty.random.IntN(2) == 0, begun); err != nil {
			return err
		}
		if err := r.until(ctx, "both aggregates are parked", begun); err != nil {
			return err
		}
		r.trace.add("both aggregates are parked")
		if err := r.faulty.commit(ctx, r, 0, append(last, otherLast...)); err != nil {
			return err
		}
		return r.until(ctx, "both aggregates are set aside", r.asideOf(name, other))
	},
	met: parkedFor("WriteRefused", "Undecided"),
}

// partitionedLetters has several aggregates parked of a partitioned entity, and kills who dead-letters their events.
var partitionedLetters = fault{
	name:     "letters are of partitions",
	topic:    func(t *servicebus.Topic) { t.EnablePartitioning = true },
	producer: func(uint64) []string { return []string{"BATCH_SCOPE=session"} },
	round: func(ctx context.Context, r *ring, n int) error {
		var names []string
		for i := range 4 {
			names = append(names, fmt.Sprintf("letters-%d-%d", n, i))
			last, err := r.refuse(ctx, names[i], forGood[(n+i)%len(forGood)])
			if err == nil {
				err = r.faulty.commit(ctx, r, 0, last)
			}
			if err != nil {
				return err
			}
		}
		over := r.asideOf(names...)
		reason := []string{"WriteRefused", "AggregateParked"}[r.faulty.random.IntN(2)]
		_, err := r.killAt(ctx, "dead-lettering as "+reason, func(u wire.Unit) bool {
			return request(wire.ServiceBus, "disposition")(u) && bytes.Contains(u.Message, []byte(reason))
		}, r.faulty.random.IntN(2) == 0, over)
		if err != nil {
			return err
		}
		return r.until(ctx, "all aggregates are set aside", over)
	},
	met: func(r *ring) error {
		if r.faulty.partitions < 2 {
			return fmt.Errorf("the dead letters are of %d partitions", r.faulty.partitions)
		}
		return parkedFor("WriteRefused")(r)
	},
}

// refuse has MongoDB refuse, until all else is at rest, what an aggregate's event writes, and commits the aggregate's events but for the last,
// which it returns.
func (r *ring) refuse(ctx context.Context, aggregate string, code int32) (last []workload.Event, err error) {
	f := r.faulty
	reason := "Undecided"
	for _, c := range forGood {
		if c == code {
			reason = "WriteRefused"
		}
	}
	total := 2 + f.random.Int64N(8)
	before := f.random.Int64N(total - 1)
	f.sicken(checker.Sick{Aggregate: aggregate, Before: before, Total: total, Reason: reason})
	f.lasting(r.refuses(aggregate, code))
	all := f.life(aggregate, total, before, stubborn, nil)
	return all[total-1:], f.commit(ctx, r, 0, all[:total-1])
}

// refuses has MongoDB refuse the documents of an aggregate that hold a stubborn event.
func (r *ring) refuses(aggregate string, code int32) (end func()) {
	return r.stack.Mongo.RefuseWrites(func(w mongo.Writing) int32 {
		if w.Database != r.model.Database().Name() || w.ID != aggregate || !holds(w.Document, stubborn) {
			return 0
		}
		r.faulty.refused.Add(1)
		return code
	})
}

func holds(timeline bson.Raw, kind string) bool {
	n, _ := timeline.Lookup("types", kind).AsInt64OK()
	return n > 0
}

// asideOf says when all that is to be set aside of sick aggregates is.
func (r *ring) asideOf(names ...string) func() bool {
	f := r.faulty
	f.mu.Lock()
	defer f.mu.Unlock()
	want := map[string]int64{}
	for _, s := range f.run.Sick {
		for _, name := range names {
			if s.Aggregate == name {
				want[name] = s.Total - s.Before
			}
		}
	}
	return func() bool {
		got := map[string]int64{}
		for _, m := range r.aside(everything) {
			got[m.Session]++
		}
		for name, n := range want {
			if got[name] < n {
				return false
			}
		}
		return true
	}
}

// parkedFor says which of these reasons nothing was parked for.
func parkedFor(reasons ...string) func(*ring) error {
	return func(r *ring) (err error) {
		for _, reason := range reasons {
			found := false
			for _, m := range r.faulty.run.Aside {
				found = found || m.Reason == reason
			}
			if !found {
				err = errors.Join(err, fmt.Errorf("no aggregate was parked as %s", reason))
			}
		}
		return err
	}
}

// largeTransactions has MongoDB refuse transactions that write more than the documents of one event: batches of many aggregates are
// halved, while projectors are killed in the middle of one.
var largeTransactions = fault{
	name: "transactions are too large", own: true, bucket: 3,
	producer: func(uint64) []string { return []string{"SESSION_KEY=bucket:3"} },
	begin: func(r *ring) {
		const smallest = 3 // the record of positions, a timeline and a total
		code := []int32{257, 359}[r.options.seed/2%2]
		r.faulty.lasting(r.stack.Mongo.RefuseWrites(func(w mongo.Writing) int32 {
			if w.Database != r.model.Database().Name() || w.Before < smallest {
				return 0
			}
			r.faulty.refused.Add(1)
			return code
		}))
	},
	round: func(ctx context.Context, r *ring, n int) error {
		f := r.faulty
		if err := r.killProjectors(); err != nil {
			return err
		}
		for i := range 10 {
			if err := f.commit(ctx, r, 0, f.life(fmt.Sprintf("many-%d-%d", n, i), 4, f.random.Int64N(4), "Special", nil)); err != nil {
				return err
			}
		}
		followed := r.mark()
		at := []func(wire.Unit) bool{request(wire.Mongo, "commitTransaction"), reply(wire.Mongo, "commitTransaction"), writes(fmt.Sprintf("many-%d-", n))}[f.random.IntN(3)]
		if _, err := r.killAt(ctx, "in a transaction", at, f.random.IntN(2) == 0, followed); err != nil {
			return err
		}
		return r.until(ctx, "all of it is applied", followed)
	},
	met: func(r *ring) error {
		if r.faulty.refused.Load() == 0 {
			return errors.New("no transaction was too large")
		}
		return nil
	},
}

// The sizes of large bodies, and of the room for them: for two of them in each of three batches of a session.
const (
	bodyBytes  = 180 << 10
	sessions   = 4
	inFlight   = sessions * 4 * (5 * bodyBytes / 2)
	mostInHand = 3 * (5 * bodyBytes / 2)
	mayHave    = 96 << 20
)

// large is what large events have.
var large = []byte(`{"pad":"` + strings.Repeat("x", bodyBytes) + `"}`)

// largeBodies has a backlog of large events come to projectors that have little memory, one of which is killed while it applies them.
var largeBodies = fault{
	name: "bodies are large", memory: mayHave, rate: 4, data: large, // behind small messages, a burst of larger ones may exceed the room once
	projector: func(uint64) []string {
		return []string{
			fmt.Sprintf("MAX_SESSIONS=%d", sessions), "SERVICE_BUS_CONNECTIONS=1",
			fmt.Sprintf("MAX_IN_FLIGHT_BYTES=%d", inFlight), fmt.Sprintf("GOMEMLIMIT=%d", mayHave/5*4),
		}
	},
	round: func(ctx context.Context, r *ring, n int) error {
		f := r.faulty
		if err := r.killProjectors(); err != nil {
			return err
		}
		for i := range 4 {
			if err := f.commit(ctx, r, 0, f.life(fmt.Sprintf("large-%d-%d", n, i), 10, 0, "Fine", large)); err != nil {
				return err
			}
		}
		followed := r.mark()
		if _, err := r.killAt(ctx, "applying large events", writes(fmt.Sprintf("large-%d-", n)), f.random.IntN(2) == 0, followed); err != nil {
			return err
		}
		return r.until(ctx, "all of it is applied", followed)
	},
	met: func(r *ring) error {
		most := r.stack.ServiceBus.Stats(r.stack.Route.Out()).MostInHand
		switch {
		case most > mostInHand:
			return fmt.Errorf("a session had %d bytes in hand, and room for %d (MAX_IN_FLIGHT_BYTES)", most, mostInHand)
		case most < bodyBytes:
			return fmt.Errorf("no session had more than %d bytes in hand", most)
		}
		return nil
	},
}

// sharedAggregates has two streams carry the same aggregates. Producers and a projector are killed while one of those is parked by an event
// of either stream.
var sharedAggregates = fault{
	name: "streams share aggregates", shared: true,
	producer: func(uint64) []string {
		return []string{"STREAMS=events,returns", "EVENTS_MONGODB_COLLECTION=events", "RETURNS_MONGODB_COLLECTION=returns"}
	},
	round: func(ctx context.Context, r *ring, n int) error {
		f, name := r.faulty, fmt.Sprintf("both-%d", n)
		total, poison := 2+f.random.Int64N(4), f.random.IntN(2)
		before := f.random.Int64N(total)
		f.sicken(checker.Sick{
			Aggregate: name, Total: 2 * total, Reason: "WriteRefused",
			Poison: history.Commit{Stream: "shop." + f.streams[poison].Name(), Aggregate: name, Version: before + 1},
		})
		f.lasting(r.refuses(name, forGood[n%len(forGood)]))
		lives := [][]workload.Event{f.life(name, total, total, "", nil), f.life(name, total, total, "", nil)}
		lives[poison] = f.life(name, total, before, stubborn, nil)
		for version := range total {
			for _, stream := range f.random.Perm(2) {
				if err := f.commit(ctx, r, stream, lives[stream][version:version+1]); err != nil {
					return err
				}
			}
		}
		if _, err := r.killAt(ctx, "applying "+name, writes(name), f.random.IntN(2) == 0, func() bool { return r.setAside(name) > 0 }); err != nil {
			return err
		}
		return r.killLeaders(ctx)
	},
	met: parkedFor("WriteRefused"),
}

// killLeaders kills a producer, or both, and waits until both streams are published again.
func (r *ring) killLeaders(ctx context.Context) error {
	victims := r.producers
	if n := r.faulty.random.IntN(3); n < len(victims) {
		victims = victims[n : n+1]
	}
	for _, p := range victims {
		instance, err := p.Signal(syscall.SIGKILL)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		r.trace.add("SIGKILL to %s", instance)
	}
	before := len(r.rec.History().Accepted)
	return r.until(ctx, "both streams are published again", func() bool {
		streams := map[string]bool{}
		for _, a := range r.rec.History().Accepted[before:] {
			streams[a.Stream] = true
		}
		return len(streams) == 2
	})
}
