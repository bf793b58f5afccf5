package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// coverage is what the seeds together have met: what a simulation must meet to be meaningful.
type coverage struct {
	mu sync.Mutex

	Messages, Takeovers, Recognised, Forgotten, Late, Guarded, Applied int

	Parking, Unnamed int // garbage
	Dropped, Fixed   int // poison
	Shared           int // writes of checkpoints while two streams had different leaders
	OfTwo, Below     int // messages where streams share aggregates, and those whose position is below an earlier one's of the other stream
	Upgrades         int // of MongoDB's resume tokens, to another version
	Replaced         int // collections
	Rewound          int // checkpoints
	Repaired         int // aggregates
	Switched         int // to a second version, which was built
	VersionsDropped  int // the first ones
	Rows, Repeats    int // of snapshots, and those of events that had been published
	Contained        int // changes of documents that a row contains, or that were deleted before their row
	Losses           int // of history
	Commanded        int // commands for snapshots
	OpenedLate       int // connections whose opening took long
	Later, Gone      int // updates that were looked up late
	Expired          int // changes that were given up because their image was gone
	Parked, LeftOut  int // messages that Service Bus refused for good, by ON_REFUSED=park and =fail

	refusing coverageOfRefusals
	broker   coverageOfBroker
	single   coverageOfSingles
	programs coverageOfPrograms
	packs    coverageOfPacks
}

// guarded finds in the log how many events a projector recognised as applied before, which it logs
// when it stops.
var guarded = regexp.MustCompile(`msg="projector stopped".* duplicates=([0-9]+)`)

func (c *coverage) add(w *world) {
	run := w.record.Run()
	c.mu.Lock()
	defer c.mu.Unlock()
	first := map[string]bool{}
	for _, a := range run.Accepted {
		switch {
		case a.Duplicate:
			c.Recognised++
		case first[a.MessageID]:
			c.Forgotten++ // a repeat that the broker's window had forgotten, and the guard recognised
		default:
			c.Messages++
		}
		first[a.MessageID] = true
		w.busLinks.Range(func(leader, _ any) bool {
			late := w.late(leader.(string), a.At)
			if late {
				c.Late++ // delivered long after its leader had sent it
			}
			return !late
		})
	}
	c.shared(w, run)
	streams := w.plan.Settings.StreamNames()
	epochs, leaders := map[string]int64{}, map[string]string{}
	for _, write := range run.Writes {
		if write.Epoch > max(1, epochs[write.Stream]) {
			c.Takeovers++
		}
		epochs[write.Stream], leaders[write.Stream] = write.Epoch, write.Leader
		if len(leaders) > 1 && leaders[streams[0]] != leaders[streams[1]] {
			c.Shared++
		}
	}
	for _, count := range guarded.FindAllStringSubmatch(w.trace.String(), -1) {
		n, _ := strconv.Atoi(count[1])
		c.Guarded += n
	}
	c.Applied += len(run.Observed)
	for _, step := range w.plan.Steps {
		if step.Kind == plan.UpgradeMongo {
			c.Upgrades++
		}
	}
	c.Replaced += int(w.replaced.Load())
	c.Rewound += int(w.rewound.Load())
	c.Repaired += int(w.repaired.Load())
	c.Switched += int(w.versions.built.Load())
	c.VersionsDropped += int(w.versions.dropped.Load())
	rows, repeats := w.record.Rows()
	c.Rows += rows
	c.Repeats += repeats
	c.Losses += len(w.record.Run().Losses)
	c.Commanded += int(w.commanded.Load())
	c.OpenedLate += int(w.openedLate.Load())
	c.Later += int(w.lookups.later.Load())
	c.Gone += int(w.lookups.gone.Load())
	for _, g := range run.Given {
		switch g.Why {
		case expired:
			c.Expired++
		case leftOut:
			c.LeftOut++
		case contained:
			c.Contained++
		default:
			c.Parked++
		}
	}
	dropped := int(w.record.Dropped())
	c.Dropped += dropped
	for _, s := range run.Sick {
		if !s.Dropped && !s.Perhaps {
			c.Fixed++
		}
	}
	c.refusing.add(w, run)
	c.broker.add(w, run)
	c.single.add(w, run)
	c.programs.add(w)
	c.packs.add(w)
	for _, g := range run.Garbage {
		if g.Aggregate == "" {
			c.Unnamed++
		} else {
			c.Parking++
		}
	}
}

func (c *coverage) shared(w *world, run checker.Run) {
	if !w.plan.Settings.Shared {
		return
	}
	seen, highest := map[string]bool{}, map[string]string{}
	for _, a := range run.Accepted {
		if !seen[a.MessageID] {
			c.OfTwo++
			if a.Position < highest[a.Aggregate] {
				c.Below++
			}
		}
		seen[a.MessageID], highest[a.Aggregate] = true, max(highest[a.Aggregate], a.Position)
	}
}

// rare is what ten or fewer of that many seeds meet, and none now and then, by chance of
// the interleaving: it is asked of many.
var rare = []string{"changes that rows contain", "parked by a producer", "left out", "undecided", "transactions too large", "parked before the last delivery", "rooms filled", "dead-lettered packs"}

// many is how many seeds meet all of it: what every change is held to.
const many = 500

var counted = regexp.MustCompile(` ?([^:]+):([0-9]+)`)

// missed returns what so many seeds should have met and have not.
func (c *coverage) missed(seeds int) (names []string) {
	for _, count := range counted.FindAllStringSubmatch(c.String(), -1) {
		if name := count[1]; count[2] == "0" && (seeds >= many || !slices.Contains(rare, name)) {
			names = append(names, name)
		}
	}
	return names
}

// What is rarely met must be required of many seeds under the name by which it is counted.
func TestCoverageMissesWhatItHasNotMet(t *testing.T) {
	none := &coverage{}
	all, few := none.missed(many), none.missed(enough)
	require.Subset(t, all, rare)
	require.Len(t, few, len(all)-len(rare))
	require.NotContains(t, few, rare[0])
	require.Contains(t, few, "messages")
	none.Messages = 1
	require.NotContains(t, none.missed(enough), "messages")
}

func (c *coverage) String() string {
	return fmt.Sprintf("messages:%d takeovers:%d repeats recognised:%d repeats forgotten:%d late:%d stopped by the guard:%d updates of the read model:%d garbage that parks:%d garbage without an aggregate:%d poison dropped:%d poison fixed:%d writes while two streams had two leaders:%d messages where streams share aggregates:%d of them below an earlier one:%d upgrades of MongoDB:%d collections replaced:%d checkpoints taken back:%d aggregates repaired:%d versions built and switched to:%d versions dropped:%d rows of snapshots:%d rows that repeat events:%d changes that rows contain:%d histories lost:%d commands for snapshots:%d slow openings:%d looked up later:%d looked up when gone:%d given up without an image:%d parked by a producer:%d left out:%d%s%s%s%s%s",
		c.Messages, c.Takeovers, c.Recognised, c.Forgotten, c.Late, c.Guarded, c.Applied, c.Parking, c.Unnamed, c.Dropped, c.Fixed, c.Shared, c.OfTwo, c.Below, c.Upgrades, c.Replaced, c.Rewound, c.Repaired, c.Switched, c.VersionsDropped, c.Rows, c.Repeats, c.Contained, c.Losses, c.Commanded, c.OpenedLate, c.Later, c.Gone, c.Expired, c.Parked, c.LeftOut, c.refusing, c.broker, c.single, c.programs, c.packs)
}
