package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Hanging is the type of the event from which the projection does not return, of a
// [HangProjection].
const Hanging = "Hanging"

// The manners of a [Poison], which are how its event fails; without one, the projection returns an
// error.
const (
	PanicsLate  = "panics-late" // a value panics while it is written as BSON
	Unencodable = "unencodable" // the driver cannot write a value as BSON
	TooLarge    = "too-large"   // the driver refuses the command for its size
	Grows       = "grows"       // the projection returns ever more writes, until the command is too large
)

// Partitions is how many partitions Service Bus is divided into, for a [RefusePartition].
const Partitions = 16

// refusedAfter is REFUSED_AFTER by default: a session that is refused for longer may stop its
// stream.
const refusedAfter = 5 * time.Minute

// unlisted are conditions from the service's own list that are in no table of the producer, and one
// that is not in the list.
var unlisted = []string{
	"com.microsoft:address-already-in-use", "com.microsoft:entity-disabled", "com.microsoft:message-lock-lost", "com.microsoft:message-not-found",
	"com.microsoft:no-matching-subscription", "com.microsoft:partition-not-owned", "com.microsoft:publisher-revoked", "com.microsoft:store-lock-lost",
	"com.contoso:full-moon",
}

// concerns are the codes with which MongoDB answers that a majority does not have what was done,
// and one that is not in its list.
var concerns = []int32{64, 91, 100, 189, 11602, 16732}

// parts are the collections that a projection writes to.
var parts = map[string][]string{Timeline: {Timeline}, Ledger: {Ledger, Ledger + "_totals", Ledger + "_positions"}}

// aWhile returns a time between 0.1 s and 10 min, each order of magnitude as likely as the others.
func aWhile(r *rand.Rand) Duration {
	const shortest, longest = 100 * time.Millisecond, 10 * time.Minute
	factor := math.Pow(float64(longest)/float64(shortest), r.Float64())
	return Duration{time.Duration(float64(shortest) * factor).Round(time.Millisecond)}
}

// singles draws what goes wrong with one aggregate, session, partition or collection and with
// nothing else, what a server answers that no table of the services has, and the healthy aggregates
// that must not notice.
func (d *drawing) singles(r *rand.Rand) {
	s := &d.plan.Settings
	s.WatchProcesses = r.IntN(2) == 0
	if patient := r.IntN(2) == 0; patient && s.WatchProcesses && s.Deliveries > 0 {
		s.Deliveries = 50 // processes end often enough to show which event ends them
	}
	for n := range d.plan.Steps {
		if manner := []string{"", "", "", PanicsLate, PanicsLate, Unencodable, TooLarge, Grows}[r.IntN(8)]; d.plan.Steps[n].Kind == Poison {
			d.plan.Steps[n].Manner = manner
		}
	}
	perhaps := func(likely bool, step Step) {
		if likely {
			d.add(step)
		}
	}
	at := moments(r, 8, d.length)
	r.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	perhaps(r.IntN(3) == 0, Step{At: at[0], Kind: EndAMQPSessions, Times: 1 + r.IntN(8), Condition: unlisted[r.IntN(len(unlisted))]})
	perhaps(r.IntN(3) == 0, Step{At: at[1], Kind: EndAMQPSessions, Chance: 0.05 + r.Float64()/10, For: between(r, 100*time.Millisecond, 3*time.Second), Random: r.Uint64()})
	command := "update"
	if r.IntN(2) == 0 && s.Projection == Ledger {
		command = "commitTransaction"
	}
	perhaps(r.IntN(3) == 0, Step{At: at[2], Kind: FailConcerns, Times: 1 + r.IntN(4), Code: concerns[r.IntN(len(concerns))], Command: command})
	hangs, crowded := r.IntN(3), r.IntN(6) == 0
	if s.Deliveries > 0 { // an event that is overtaken or dead-lettered has no time within which it must be applied
		return
	}
	s.Healthy = 1 + r.IntN(3)
	if crowded { // more aggregates that fail than there are workers
		s.Sessions, s.Projectors = min(s.Sessions, 2), min(s.Projectors, 2)
		if s.Connections = min(s.Connections, s.Sessions); s.Receiver == SDK {
			s.Connections = s.Sessions
		}
		hangs = s.Sessions*s.Projectors + 1
		d.plan.Steps = slices.DeleteFunc(d.plan.Steps, func(step Step) bool { return d.plan.check(step) != nil })
	}
	for n, at := range moments(r, hangs, d.length) {
		step := Step{At: at, Kind: HangProjection, Aggregate: fmt.Sprintf("hung-%d", n+1), Random: r.Uint64(), Total: 1 + r.Int64N(8), For: aWhile(r)}
		step.Before = r.Int64N(step.Total)
		// In a shared session, what waits may fill its room, as in broker: the projection returns.
		fills := s.BodyKiB > 0 && s.SessionKey != envelope.SessionKey{}
		if lasts := crowded || r.IntN(2) == 0; lasts && !fills {
			step.For = Duration{} // until all else is at rest
		}
		d.add(step)
	}
	condition, answer := unlisted[r.IntN(len(unlisted))], []string{Rejected, Detached}[r.IntN(2)]
	one := Step{At: at[3], Kind: RefuseSession, Aggregate: fmt.Sprintf("hot-%d", r.IntN(d.hot)), Answer: answer, Condition: condition}
	one.For.Duration = min(aWhile(r).Duration, refusedAfter-10*time.Second)
	if r.IntN(2) == 0 {
		one.Kind, one.Aggregate, one.Times = RefusePartition, "", 1+r.IntN(Partitions)
	}
	// Where several aggregates share a session, or all messages must be published before the
	// operator does something, all wait.
	perhaps(r.IntN(3) == 0 && s.OnRefused == "" && s.SessionKey == envelope.SessionKey{}, one)
	names := parts[s.Projection]
	likely := r.IntN(3) == 0
	all := Step{At: at[4], Kind: RefuseCollection, Collection: names[r.IntN(len(names))], Code: unknown[r.IntN(len(unknown))], For: aWhile(r)}
	if s.Receiver == SDK { // which receives all that waits again, with every hold of a session
		all.For.Duration = min(all.For.Duration, time.Minute)
	}
	perhaps(likely, all)
}

// HealthyNames returns the names of the aggregates with which nothing goes wrong.
func (s Settings) HealthyNames() (names []string) {
	for n := range s.Healthy {
		names = append(names, fmt.Sprintf("healthy-%d", n+1))
	}
	return names
}

// Stubborn is the type of the event that MongoDB refuses to write, of a [RefuseDocument].
const Stubborn = "Stubborn"

// forGood are codes by which a projector knows that a document is refused because of its content:
// those of indexes that cannot take it, and of a single transaction that is too large. The others
// are unlisted in a projector.
var (
	forGood = []int32{171, 201, 16755, 16766, 17261, 257, 359}
	unknown = []int32{
		1, 8, 12, 47, 61, 67, 72, 96, 125, 146, 165, 211, 238, 292, 334, 13026, 13068, 16675, 16732, 16756, 16804,
	}
)

// ForGood reports whether a projector recognises a code as a permanent refusal.
func ForGood(code int32) bool { return slices.Contains(forGood, code) }

// tooLarge are the codes of transactions that are too large.
var tooLarge = []int32{257, 359}

// smallest is how many documents the transaction of one event of [Ledger] writes: the record of
// positions, a timeline and a total.
const smallest = 3

// refusals draws what the read model's database, or a projection, does to some events and not to
// others.
func (d *drawing) refusals(r *rand.Rand) {
	s := &d.plan.Settings
	s.UndecidedAfter = []Duration{seconds(10), seconds(10), seconds(30), seconds(600)}[r.IntN(4)]
	stubborn, larger, slow := r.IntN(9)/3, r.IntN(2), r.IntN(4)
	for n, at := range moments(r, stubborn, d.length) {
		codes := [][]int32{forGood, unknown, unknown}[r.IntN(3)]
		step := Step{At: at, Kind: RefuseDocument, Aggregate: fmt.Sprintf("stubborn-%d", n+1), Code: codes[r.IntN(len(codes))], Random: r.Uint64()}
		step.Total = 2 + r.Int64N(10)
		step.Before = r.Int64N(step.Total)
		if forAWhile := between(r, time.Second, 40*time.Second); r.IntN(2) == 0 {
			step.For = forAWhile
		}
		d.add(step)
	}
	at, long, code, delay := moments(r, 2, d.length), between(r, 3*time.Second, 20*time.Second), tooLarge[r.IntN(2)], between(r, 20*time.Millisecond, 300*time.Millisecond)
	if s.Projection == Ledger && larger > 0 {
		d.add(Step{At: at[0], Kind: SmallTransactions, Times: smallest, Code: code, For: long})
	}
	if slow == 0 {
		s.ApplyTimeout = Duration{time.Second}
		s.UndecidedAfter = seconds(600) // an aggregate may time out repeatedly, while others do not
		d.add(Step{At: at[1], Kind: SlowEvents, Delay: delay, For: long})
	}
}
