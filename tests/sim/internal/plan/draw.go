package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// DuplicateWindow is the broker's: the shortest that Service Bus allows. Repeats far outside it are
// part of the plan.
const DuplicateWindow = 20 * time.Second

// The features that [DrawWith] draws into every run.
const (
	// WithSnapshot is a snapshot in the stream.
	WithSnapshot = "snapshot"
	// WithBuild is a second version of the projection.
	WithBuild = "build"
)

// Draw returns the plan of a seed. Each part of it has a random source of its own.
func Draw(seed uint64) Plan { return DrawWith(seed, "") }

// DrawWith returns the plan of a seed with a feature, for which it leaves out what excludes the
// feature; "" leaves that to chance.
func DrawWith(seed uint64, feature string) Plan {
	d := &drawing{
		feature: feature,
		faults:  rand.New(rand.NewPCG(seed, 0x51)), aim: rand.New(rand.NewPCG(seed, 0xa1)), mending: rand.New(rand.NewPCG(seed, 0x3e)),
	}
	d.plan.Seed = seed
	d.settings(seed)
	d.packs(rand.New(rand.NewPCG(seed, 0x9c)))
	d.plan.Bursts = d.workload(rand.New(rand.NewPCG(seed, 0x17)))
	d.steps()
	if feature == "" {
		d.documents(rand.New(rand.NewPCG(seed, 0xd0)))
	}
	if feature != WithBuild {
		d.replacements(rand.New(rand.NewPCG(seed, 0x4e)))
	}
	d.answers(rand.New(rand.NewPCG(seed, 0x5b)))
	if feature == "" {
		d.neverTakenMessages(rand.New(rand.NewPCG(seed, 0x0f)))
	}
	d.openings(rand.New(rand.NewPCG(seed, 0x0e)))
	d.version(rand.New(rand.NewPCG(seed, 0x4d)))
	d.upgrades(rand.New(rand.NewPCG(seed, 0x6e)))
	d.refusals(rand.New(rand.NewPCG(seed, 0x14)))
	d.broker(rand.New(rand.NewPCG(seed, 0x15)))
	d.share(rand.New(rand.NewPCG(seed, 0x5a)))
	d.singles(rand.New(rand.NewPCG(seed, 0x77)))
	d.rewinds(rand.New(rand.NewPCG(seed, 0x4b)))
	d.program(rand.New(rand.NewPCG(seed, 0x36)))
	d.plan.Garbage = d.litter(rand.New(rand.NewPCG(seed, 0x9a)))
	d.operator()
	if feature != WithSnapshot {
		d.repairs(rand.New(rand.NewPCG(seed, 0x9e)))
	}
	if feature != WithBuild {
		d.snapshots(rand.New(rand.NewPCG(seed, 0x32)))
	}
	d.versions(rand.New(rand.NewPCG(seed, 0x2b)))
	d.store(rand.New(rand.NewPCG(seed, 0x70)))
	return d.plan
}

// version chooses among the versions that users run, or among those that have images if these are
// needed.
func (d *drawing) version(r *rand.Rand) {
	versions := []string{"4.4", "5.0", "6.0", "7.0", "8.0"}
	if d.plan.Settings.Documents != "" {
		versions = versions[2:]
	}
	if d.feature == WithBuild {
		versions[0] = "5.0"
	}
	d.plan.Settings.MongoVersion = versions[r.IntN(len(versions))]
}

// drawing is a plan that is being drawn, with data that is only needed until then.
type drawing struct {
	plan    Plan
	feature string // see [DrawWith]

	faults, aim, mending *rand.Rand

	length                                    time.Duration
	events, hot, cold, random, aimed, garbage int
	drips, sick                               int
}

var trips = []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 60 * time.Millisecond}

func (d *drawing) settings(seed uint64) {
	r := d.faults
	s := Settings{
		Producers: 2 + r.IntN(2), Projectors: 1 + r.IntN(3), Streams: 1,
		Lanes: []int{1, 2, 4, 8}[r.IntN(4)], BatchMessages: []int{1, 5, 20, 100}[r.IntN(4)],
		Scope: []string{"session", "mixed", "auto"}[r.IntN(3)], Format: []string{"json", "bson"}[r.IntN(2)],
		Takeover:    []string{"break", "break", "break", "expiry"}[r.IntN(4)],
		MaxInFlight: []int64{10, 50, 1000}[r.IntN(3)],
		Sessions:    1 + r.IntN(6), Connections: 1 + r.IntN(2), ReceiveBatch: []int{1, 10, 100}[r.IntN(3)],
		LockDuration: seconds(8 + r.IntN(20)), MaxHold: seconds(2 + r.IntN(10)),
	}
	d.events, d.hot, d.cold = 80+r.IntN(240), 1+r.IntN(3), 5+r.IntN(25)
	d.length, d.random = time.Duration(25+r.IntN(35))*time.Second, 6+r.IntN(14)
	d.plan.Heals.Duration = d.length
	if s.Receiver = []string{"auto", "direct", "direct", SDK}[r.IntN(4)]; s.Receiver == SDK {
		s.Connections = s.Sessions
	}
	s.MongoTrip, s.BlobTrip = Duration{trips[r.IntN(len(trips))]}, Duration{trips[r.IntN(len(trips))]}
	s.Connections = min(s.Connections, s.Sessions)
	d.aimed, s.Projection = 1+d.aim.IntN(5), []string{Timeline, Timeline, Timeline, Ledger}[d.aim.IntN(4)]
	s.GapWait = seconds([]int{0, 30}[d.aim.IntN(2)])
	d.garbage = d.mending.IntN(4)
	if seed%4 == 3 && d.feature != WithBuild {
		s.Streams = len(Collections)
	}
	if seed%8 == 0 {
		s.SessionKey = envelope.Buckets(3)
	}
	d.plan.Settings = s
}

// workload is bursts of events of a few hot aggregates and many cold ones, over the length of the
// run.
func (d *drawing) workload(r *rand.Rand) (bursts []Burst) {
	gap := d.length / time.Duration(d.events/8+1)
	at := time.Duration(0)
	for n := 0; n < d.events; {
		b := Burst{At: Duration{at}}
		for range min(1+r.IntN(15), d.events-n) {
			n++
			aggregate := fmt.Sprintf("hot-%d", r.IntN(d.hot))
			if r.IntN(2) == 0 {
				aggregate = fmt.Sprintf("cold-%d", r.IntN(d.cold))
			}
			b.Events = append(b.Events, Event{Aggregate: aggregate, Kind: fmt.Sprintf("Kind%d", r.IntN(3))})
		}
		bursts = append(bursts, b)
		at += time.Duration(r.Int64N(int64(2 * gap))).Round(time.Millisecond)
	}
	return bursts
}

// steps draws the faults: their moments first, then what happens at each.
func (d *drawing) steps() {
	random := moments(d.faults, d.random, d.length)
	aimed := moments(d.aim, d.aimed, d.length)
	for _, at := range random {
		d.add(d.fault(at))
	}
	for _, at := range aimed {
		if s := d.aimedAt(at); s.Kind != "" {
			d.add(s)
		}
	}
}

// add adds faults at their moments, behind those that were drawn for the same moments before.
func (d *drawing) add(steps ...Step) {
	d.plan.Steps = append(d.plan.Steps, steps...)
	slices.SortStableFunc(d.plan.Steps, func(a, b Step) int { return cmp.Compare(a.At.Duration, b.At.Duration) })
}

// leaveOut removes the faults of some kinds.
func (d *drawing) leaveOut(kinds ...Kind) {
	d.plan.Steps = slices.DeleteFunc(d.plan.Steps, func(s Step) bool { return slices.Contains(kinds, s.Kind) })
}

func moments(r *rand.Rand, n int, within time.Duration) (all []Duration) {
	for range n {
		all = append(all, Duration{time.Duration(r.Int64N(int64(within)))})
	}
	slices.SortFunc(all, func(a, b Duration) int { return cmp.Compare(a.Duration, b.Duration) })
	for n := range all {
		all[n].Duration = all[n].Round(time.Millisecond)
	}
	return all
}

// between returns a random duration.
func between(r *rand.Rand, low, high time.Duration) Duration {
	return Duration{(low + time.Duration(r.Int64N(int64(high-low)))).Round(time.Millisecond)}
}

func sum(d Duration, more time.Duration) Duration {
	return Duration{d.Duration + more.Round(time.Millisecond)}
}

// fault returns one random fault.
func (d *drawing) fault(at Duration) Step {
	r, of := d.faults, d.plan.Settings.ProducerNames()
	// Every choice is drawn in any case, whether or not the fault needs it.
	if r.IntN(5) < 2 {
		of = d.plan.Settings.ProjectorNames()
	}
	s := Step{At: at, Of: of[r.IntN(len(of))]}
	kind, short, long, few := r.IntN(35), between(r, 0, 3*time.Second), between(r, 0, 30*time.Second), 1+r.IntN(4)
	way, which, coin := []string{Requests, Replies, BothWays}[r.IntN(3)], r.IntN(3), r.IntN(2) == 0
	switch kind {
	case 0, 1:
		s.Kind, s.Silent, s.For = Kill, coin, short
	case 2:
		s.Kind, s.For = Stop, short
	case 3, 4, 5:
		s.Kind, s.KillAfter, s.For, s.Late = HoldAndKill, short, sum(short, long.Duration), coin
	case 6, 7, 8, 9:
		s.Kind, s.Way, s.For = Hang, way, sum(short, long.Duration/4)
		d.partition(&s, which)
	case 10, 11:
		s.Kind, s.For = Cut, sum(short, long.Duration/4)
		d.partition(&s, which)
	case 12:
		s.Kind = CutBus
	case 13:
		s.Kind = CutMongo
	case 14:
		s.Kind = KillCursors
	case 15:
		s.Kind, s.For = StepDown, short
	case 16:
		s.Kind, s.For = StorageFails, long
	case 17:
		s.Kind, s.Times = LoseAcks, few
	case 18:
		if s.Kind, s.Times = RefuseSends, few; coin { // so many that lanes wait unequally long to try again
			s.Times = 6 * few
		}
	case 19:
		s.Kind, s.Times, s.Command = LoseReplies, few, Commands[r.IntN(len(Commands))]
	case 20:
		if s.Kind, s.Times, s.For = SlowUpdates, few, short; coin {
			s.Kind, s.For = RefuseUpdates, Duration{}
		}
	case 21:
		s.Kind, s.Times = LoseAnswers, few
	case 22, 23:
		s.Kind, s.Takes, s.For = BreakLease, coin, sum(Duration{}, long.Duration/2)
		streams := d.plan.Settings.StreamNames()
		if s.Stream = streams[0]; len(streams) > 1 {
			s.Stream = streams[r.IntN(len(streams))]
		}
	case 24, 25:
		s.Kind, s.Times, s.For = DelayRequests, few, sum(short, long.Duration/4)
	case 26, 27, 28, 29, 30:
		projectors := d.plan.Settings.ProjectorNames()
		s.Of = projectors[r.IntN(len(projectors))]
		s.Kind = []Kind{KillInHand, KillInHand, StopInHand, CutBusInHand, CutInHand}[kind-26]
		s.Silent, s.For, s.Times, s.Early = kind == 27, short, few, coin
	case 31, 32: // for so long that the broker forgets what it has seen
		s.Kind, s.Silent, s.For = KillProducers, coin, sum(short, DuplicateWindow)
	case 33, 34:
		s.Kind, s.For = Isolate, sum(short, long.Duration)
	}
	if !requires(s.Kind, "of") {
		s.Of = ""
	}
	return s
}

// Commands are MongoDB's whose replies get lost.
var Commands = []string{"update", "insert", "getMore", "find", "aggregate"}

// partition selects the server that a replica is separated from.
func (d *drawing) partition(s *Step, which int) {
	producer := strings.HasPrefix(s.Of, "producer")
	switch {
	case which == 1:
		s.Server = MongoDB
	case which == 2 && producer:
		s.Server = Storage
	default:
		s.Server = ServiceBus
		if !producer && d.plan.Settings.Receiver == SDK && s.Way == Requests && s.For.Duration >= d.plan.Settings.LockDuration.Duration/2 {
			s.Way = BothWays // otherwise the broker reports expired locks, and settlements open the link again while it hangs
		}
	}
}

// aimedAt returns one of the faults that reveal a certain kind of bug, if it is there. At random
// they would coincide too rarely. It has no kind if it cannot be combined with the others.
func (d *drawing) aimedAt(at Duration) Step {
	r, s := d.aim, Step{At: at}
	kind, short, chance := r.IntN(8), between(r, time.Second, 4*time.Second), 0.3+0.5*r.Float64()
	few, seed, own := 1+r.IntN(3), r.Uint64(), r.Uint64()
	chance = float64(int(1000*chance)) / 1000
	switch kind {
	case 0:
		s.Kind, s.For = OvertakeWrite, sum(short, 2500*time.Millisecond)
	case 1: // lanes wait unequally long for what they send, over several heartbeats
		s.Kind, s.Chance, s.For, s.Random = BusySends, chance, short, seed
	case 2: // messages reach a session one by one, while earlier ones are being applied
		d.drips++
		s.Kind, s.Aggregate, s.Total = Drip, fmt.Sprintf("drip-%d", d.drips), 30
		s.Delay, s.For, s.Random = Duration{time.Duration(1+int64(40*chance)) * time.Millisecond}, seconds(2), own
	case 3: // rarely, since every loss is one of the ten deliveries that a message has
		if d.plan.Has(LoseLocks) {
			return Step{}
		}
		s.Kind, s.Chance, s.For, s.Random = LoseLocks, 0.3, sum(Duration{}, short.Duration/2), seed
	case 4: // it is unknown whether the transaction is committed
		if d.plan.Settings.Projection != Ledger {
			return Step{}
		}
		s.Kind, s.Command, s.Times = LoseReplies, "commitTransaction", few
	case 5, 6: // an event that cannot be applied, among others
		d.sick++
		total := rand.New(rand.NewPCG(own, 0xd1))
		s.Kind, s.Aggregate, s.Random = Poison, fmt.Sprintf("sick-%d", d.sick), own
		s.Total = 3 + total.Int64N(15)
		s.Before = total.Int64N(s.Total)
	case 7:
		s.Kind, s.For = Scale, short
	}
	return s
}

// litter returns what strangers send, one message after the other.
func (d *drawing) litter(r *rand.Rand) (all []Garbage) {
	at := time.Duration(0)
	for n := range d.garbage {
		at += time.Duration(r.Int64N(int64(d.length) / int64(d.garbage))).Round(time.Millisecond)
		g := Garbage{At: Duration{at}, ID: fmt.Sprintf("garbage-%d", n)}
		if r.IntN(3) == 0 {
			g.Form, g.Aggregate = Unnamed, fmt.Sprintf("long-%d", n)
			g.Before, g.Random = r.Int64N(10), r.Uint64()
		} else {
			candidates := d.before(at, all)
			if len(candidates) == 0 {
				continue
			}
			g.Aggregate = candidates[r.IntN(len(candidates))]
			if g.Form = BrokenBody; r.IntN(2) == 0 {
				g.Form = Unsaid
			}
			taken := func(other Garbage) bool { return other.Form != Unnamed && other.Aggregate == g.Aggregate }
			if slices.ContainsFunc(all, taken) {
				continue
			}
		}
		all = append(all, g)
	}
	return all
}

// before returns the aggregates of what is committed before a moment, once for each event, except
// those with poison.
func (d *drawing) before(at time.Duration, garbage []Garbage) (aggregates []string) {
	for _, b := range d.plan.Bursts {
		for _, e := range b.Events {
			if b.At.Duration <= at {
				aggregates = append(aggregates, e.Aggregate)
			}
		}
	}
	for _, s := range d.plan.Steps {
		if s.Kind == Drip && s.At.Duration <= at {
			aggregates = append(aggregates, s.Aggregate)
		}
	}
	for _, g := range garbage {
		if g.Form == Unnamed {
			aggregates = append(aggregates, g.Aggregate)
		}
	}
	return aggregates
}
