package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

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
