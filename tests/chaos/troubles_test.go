package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/cable"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// whose selects the services whose network fails.
type whose int

const (
	theLeader whose = iota
	theStandby
	oneProjector
	allProducers
	allProjectors
	allProcesses
)

// meanwhile is the progress that must happen during the trouble, before the trouble may end.
type meanwhile int

const (
	nothing      meanwhile = iota
	anotherLeads           // another producer publishes in a later epoch
	itGoesOn               // what is committed meanwhile becomes visible
)

// trouble is one way in which a network fails.
type trouble struct {
	name       string
	of         whose
	to         []wire.Server // the connections to these servers; empty: to all
	directions []cable.Direction
	is         cable.Conditions
	// forgets means that the present connections die for good, while new ones work.
	forgets bool
	// flaps means that the trouble comes and goes, for a second each.
	flaps bool
	meanwhile
}

// These are bad networks, in each direction: a round trip is twice the delay.
var (
	gone = cable.Conditions{Cut: true}
	slow = cable.Conditions{Delay: 150 * time.Millisecond}
	leak = cable.Conditions{Loss: 0.02}
	// mixed lets the packets of the next 20 ms overtake a quarter of the packets.
	mixed = cable.Conditions{Delay: 10 * time.Millisecond, Late: 0.25, LateBy: 20 * time.Millisecond}
	bad   = cable.Conditions{Delay: 150 * time.Millisecond, Loss: 0.02, Late: 0.25, LateBy: 20 * time.Millisecond}
)

// troubles are all troubles.
var troubles = func() (all []trouble) {
	// Each cut has three forms: no packet passes; requests pass and answers do not; answers pass
	// and requests do not.
	cuts := []struct {
		name, by   string
		directions []cable.Direction
	}{
		{"cut off", "from", cable.Both()}, {"not answered", "by", []cable.Direction{cable.Answers}}, {"not heard", "by", []cable.Direction{cable.Requests}},
	}
	for _, cut := range cuts {
		add := func(name string, of whose, m meanwhile, to ...wire.Server) {
			name += " is " + cut.name
			for _, server := range to {
				name += fmt.Sprintf(" %s %s", cut.by, server)
			}
			all = append(all, trouble{name: name, of: of, to: to, directions: cut.directions, is: gone, meanwhile: m})
		}
		add("the leader", theLeader, anotherLeads)
		add("the leader", theLeader, anotherLeads, wire.Blob)
		add("the leader", theLeader, anotherLeads, wire.ServiceBus)
		add("the leader", theLeader, anotherLeads, wire.Mongo)
		add("a projector", oneProjector, itGoesOn)
		add("a projector", oneProjector, itGoesOn, wire.ServiceBus)
		// It keeps its sessions, renews their locks and waits for the database, so no other
		// projector gets them.
		add("a projector", oneProjector, nothing, wire.Mongo)
		add("the standby", theStandby, itGoesOn)
		add("every producer", allProducers, nothing)
		add("every projector", allProjectors, nothing)
		add("every process", allProcesses, nothing)
	}
	for _, network := range []struct {
		name string
		is   cable.Conditions
	}{{"has a round trip of 300 ms", slow}, {"loses 2 % of the packets", leak}, {"reorders packets", mixed}, {"does all three", bad}} {
		all = append(all, trouble{name: "every network " + network.name, of: allProcesses, directions: cable.Both(), is: network.is, meanwhile: itGoesOn})
	}
	for _, dead := range []struct {
		whose string
		of    whose
		to    []wire.Server
	}{
		{"the leader's connections to Blob storage", theLeader, []wire.Server{wire.Blob}},
		{"the leader's connections to Service Bus", theLeader, []wire.Server{wire.ServiceBus}},
		{"the leader's connections to MongoDB", theLeader, []wire.Server{wire.Mongo}},
		{"a projector's connections to Service Bus", oneProjector, []wire.Server{wire.ServiceBus}},
		{"a projector's connections to MongoDB", oneProjector, []wire.Server{wire.Mongo}},
		{"every process's connections", allProcesses, nil},
	} {
		all = append(all, trouble{name: dead.whose + " are forgotten", of: dead.of, to: dead.to, forgets: true, meanwhile: itGoesOn})
	}
	return append(all,
		trouble{name: "the leader's network comes and goes", of: theLeader, directions: cable.Both(), is: gone, flaps: true},
		trouble{name: "a projector's network comes and goes", of: oneProjector, directions: cable.Both(), is: gone, flaps: true},
		trouble{name: "every network comes and goes", of: allProcesses, directions: cable.Both(), is: gone, flaps: true},
	)
}()

// spell is one round: a trouble, and how long it lasts at least.
type spell struct {
	trouble
	lasts time.Duration
	which int // of several projectors
}

func (s spell) String() string { return fmt.Sprintf("%s for %s", s.name, s.lasts) }

// spells returns what is drawn from a seed: every trouble comes once before one comes again. They
// last from a second, which no timeout notices, to longest.
func spells(seed uint64, n int, longest time.Duration) (drawn []spell) {
	random := rand.New(rand.NewPCG(seed, 0x7e7))
	var order []int
	for range n {
		if len(order) == 0 {
			order = random.Perm(len(troubles))
		}
		s := spell{trouble: troubles[order[0]], lasts: time.Second + time.Duration(random.Int64N(int64(longest-time.Second))), which: random.IntN(2)}
		s.lasts = s.lasts.Round(100 * time.Millisecond)
		drawn, order = append(drawn, s), order[1:]
	}
	return drawn
}

// named returns a spell of the trouble with this name.
func named(name string, lasts time.Duration) spell {
	n := slices.IndexFunc(troubles, func(t trouble) bool { return t.name == name })
	if n < 0 {
		panic("no trouble has the name " + name)
	}
	return spell{trouble: troubles[n], lasts: lasts}
}
