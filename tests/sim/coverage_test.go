package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// covered is what the seeds together must have met for a simulation to be meaningful.
var covered = []string{
	"messages", "takeovers", "repeats recognised", "repeats forgotten", "late", "stopped by the guard", "updates of the read model",
	"garbage that parks", "garbage without an aggregate", "poison dropped", "poison fixed", "writes while two streams had two leaders",
	"messages where streams share aggregates", "of them below an earlier one", // a position of the other stream
	"upgrades of MongoDB", // to resume tokens of another version
	"collections replaced", "checkpoints taken back", "aggregates repaired", "versions built and switched to", "versions dropped",
	"rows of snapshots", "rows that repeat events", "changes that rows contain", // or that were deleted before their row
	"histories lost", "commands for snapshots", "slow openings", "looked up later", "looked up when gone", "given up without an image",
	"parked by a producer", "left out", // messages that Service Bus refused for good, by ON_REFUSED=park and =fail
	"undecided", "refused for good", "refused for a while", // aggregates with a document that MongoDB refuses
	"transactions too large", "slow events",
	"parked before the last delivery", "dead-lettered by the broker", "expired", "overtaken", "given up for it", "deaths of a deadly event", "parked for them",
	"letters of partitions", "rooms filled", // to more than a half
	"hung projections", "poison in other manners", "ended AMQP sessions", "write concern errors", "refused sends of single sessions",
	"refused writes to a collection", "healthy events with a bound", longestWait,
	"projections in programs", "killed programs", "programs of another declaration", failedAnswers,
	"events at which a program throws", "that kill it", "that it answers wrongly",
	"packs", "events in packs", "dead-lettered packs", copiesOfParked, "packs off",
}

const (
	longestWait    = "milliseconds of the longest of their waits"
	failedAnswers  = "failed answers of programs"
	copiesOfParked = "copies of parked events"
)

// coverage counts what was met, by one run or by all of them. It is safe for concurrent use.
type coverage struct {
	mu  sync.Mutex
	met map[string]int // guarded by mu
}

// add counts what was met n times.
func (c *coverage) add(name string, n int) { c.set(name, func(met int) int { return met + n }) }

// most keeps the largest number.
func (c *coverage) most(name string, n int) { c.set(name, func(met int) int { return max(met, n) }) }

func (c *coverage) set(name string, change func(met int) int) {
	if !slices.Contains(covered, name) {
		panic(name + " is not required") // and would never be missed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.met == nil {
		c.met = map[string]int{}
	}
	c.met[name] = change(c.met[name])
}

// count returns how often the situation of that name was met.
func (c *coverage) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.met[name]
}

// guarded finds in the log how many events a projector recognised as applied before, which it logs
// when it stops.
var guarded = regexp.MustCompile(`msg="projector stopped".* duplicates=([0-9]+)`)

// addRun adds what a run has met.
func (c *coverage) addRun(w *world) {
	run := w.record.Run()
	for _, name := range covered {
		c.add(name, w.met.count(name))
	}
	c.addAccepted(w, run)
	streams := w.plan.Settings.StreamNames()
	epochs, leaders := map[string]int64{}, map[string]string{}
	for _, write := range run.Writes {
		if write.Epoch > max(1, epochs[write.Stream]) {
			c.add("takeovers", 1)
		}
		epochs[write.Stream], leaders[write.Stream] = write.Epoch, write.Leader
		if len(leaders) > 1 && leaders[streams[0]] != leaders[streams[1]] {
			c.add("writes while two streams had two leaders", 1)
		}
	}
	for _, count := range guarded.FindAllStringSubmatch(w.trace.String(), -1) {
		n, _ := strconv.Atoi(count[1])
		c.add("stopped by the guard", n)
	}
	c.add("updates of the read model", len(run.Observed))
	for _, step := range w.plan.Steps {
		if step.Kind == plan.UpgradeMongo {
			c.add("upgrades of MongoDB", 1)
		}
	}
	rows, repeats := w.record.Rows()
	c.add("rows of snapshots", rows)
	c.add("rows that repeat events", repeats)
	c.add("histories lost", len(run.Losses))
	for _, g := range run.Given {
		name, known := map[string]string{expired: "given up without an image", leftOut: "left out", contained: "changes that rows contain"}[g.Why]
		if !known {
			name = "parked by a producer"
		}
		c.add(name, 1)
	}
	for _, g := range run.Garbage {
		if g.Aggregate == "" {
			c.add("garbage without an aggregate", 1)
		} else {
			c.add("garbage that parks", 1)
		}
	}
	c.addAside(w, run)
	run.Waits = w.waits()
	judged, longest, _ := run.LongestWait()
	c.add("healthy events with a bound", judged)
	c.most(longestWait, int(longest.Milliseconds()))
	if w.plan.Settings.Program {
		c.add("projections in programs", 1)
	}
	if room := w.plan.Settings.RoomOfSession(); room > 0 && w.bus.Stats(subPath).MostInHand > room/2 {
		c.add("rooms filled", 1)
	}
}

// addAccepted adds what the broker has accepted.
func (c *coverage) addAccepted(w *world, run checker.Run) {
	seen, highest := map[string]bool{}, map[string]string{}
	for _, a := range run.Accepted {
		switch {
		case a.Duplicate:
			c.add("repeats recognised", 1)
		case seen[a.MessageID]:
			c.add("repeats forgotten", 1) // by the broker's window, and the guard recognised it
		default:
			c.add("messages", 1)
		}
		w.busLinks.Range(func(leader, _ any) bool {
			late := w.late(leader.(string), a.At)
			if late {
				c.add("late", 1) // delivered long after its leader had sent it
			}
			return !late
		})
		if w.plan.Settings.Shared && !seen[a.MessageID] {
			c.add("messages where streams share aggregates", 1)
			if a.Position < highest[a.Aggregate] {
				c.add("of them below an earlier one", 1)
			}
		}
		seen[a.MessageID], highest[a.Aggregate] = true, max(highest[a.Aggregate], a.Position)
	}
}

// addAside adds what was wrong with single aggregates, and what was set aside.
func (c *coverage) addAside(w *world, run checker.Run) {
	for _, s := range run.Sick {
		switch parked := slices.ContainsFunc(run.Aside, func(m checker.Aside) bool { return run.Names(m) == s.Aggregate }); {
		case s.Dropped:
			c.add("poison dropped", 1)
		case !s.Perhaps:
			c.add("poison fixed", 1)
		case !parked:
			c.add("refused for a while", 1)
		case s.Reason == "Undecided":
			c.add("undecided", 1)
		default:
			c.add("refused for good", 1)
		}
	}
	for _, m := range run.Aside {
		name, counted := map[string]string{
			checker.ReasonDeliveries: "parked before the last delivery", checker.ReasonEnded: "parked for them",
			servicebus.UsedUp: "dead-lettered by the broker", servicebus.Expired: "expired",
		}[m.Reason]
		if counted {
			c.add(name, 1)
		}
	}
	if w.plan.Settings.Partitioned {
		c.add("letters of partitions", len(run.Aside))
	}
	if run.UsedUp != nil {
		c.add("overtaken", run.UsedUp.Judged())
		c.add("given up for it", len(run.UsedUp.Abandoned))
	}
}

// rare is what ten or fewer of that many seeds meet, and none now and then, by chance of
// the interleaving: it is asked of many.
var rare = []string{"changes that rows contain", "parked by a producer", "left out", "undecided", "transactions too large", "parked before the last delivery", "rooms filled", "dead-lettered packs"}

// many is how many seeds meet all of it: what every change is held to.
const many = 500

// missed returns what so many seeds should have met and have not.
func (c *coverage) missed(seeds int) (names []string) {
	for _, name := range covered {
		if c.count(name) == 0 && (seeds >= many || !slices.Contains(rare, name)) {
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
	none.add("messages", 1)
	require.NotContains(t, none.missed(enough), "messages")
}

func (c *coverage) String() string {
	var words []string
	for _, name := range covered {
		words = append(words, fmt.Sprintf("%s:%d", name, c.count(name)))
	}
	return strings.Join(words, " ")
}
