package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/cable"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// whose is whose network is in trouble.
type whose int

const (
	theLeader whose = iota
	theStandby
	oneProjector
	allProducers
	allProjectors
	everybody
)

// meanwhile is what must come about while the trouble lasts, before it may end.
type meanwhile int

const (
	nothing      meanwhile = iota
	anotherLeads           // somebody publishes in a later epoch
	itGoesOn               // what was committed meanwhile is to be seen
)

// trouble is one way in which a network fails.
type trouble struct {
	name       string
	of         whose
	to         []wire.Server // the ways to these servers; empty: to all
	directions []cable.Direction
	is         cable.Conditions
	// forgets: the connections that there are die for good, and new ones do not.
	forgets bool
	// flaps: it comes and goes, a second each.
	flaps bool
	meanwhile
}

// Bad networks, in each direction: a round trip is twice the delay.
var (
	gone = cable.Conditions{Cut: true}
	slow = cable.Conditions{Delay: 150 * time.Millisecond}
	leak = cable.Conditions{Loss: 0.02}
	// mixed lets a quarter of the packets be overtaken by those of the next 20 ms.
	mixed = cable.Conditions{Delay: 10 * time.Millisecond, Late: 0.25, LateBy: 20 * time.Millisecond}
	bad   = cable.Conditions{Delay: 150 * time.Millisecond, Loss: 0.02, Late: 0.25, LateBy: 20 * time.Millisecond}
)

// troubles are all of them.
var troubles = func() (all []trouble) {
	// Each cut in three ways: nothing passes; requests do and answers do not; answers do and requests do not.
	cuts := []struct {
		name       string
		directions []cable.Direction
	}{
		{"cut off", cable.Both()}, {"not answered", []cable.Direction{cable.Answers}}, {"not heard", []cable.Direction{cable.Requests}},
	}
	for _, cut := range cuts {
		add := func(name string, of whose, m meanwhile, to ...wire.Server) {
			all = append(all, trouble{name: name + " is " + cut.name, of: of, to: to, directions: cut.directions, is: gone, meanwhile: m})
		}
		add("the leader", theLeader, anotherLeads)
		add("by Blob storage the leader", theLeader, anotherLeads, wire.Blob)
		add("by Service Bus the leader", theLeader, anotherLeads, wire.ServiceBus)
		add("by MongoDB the leader", theLeader, anotherLeads, wire.Mongo)
		add("a projector", oneProjector, itGoesOn)
		add("by Service Bus a projector", oneProjector, itGoesOn, wire.ServiceBus)
		// It keeps its sessions, renews their locks and waits for the database: so others do not get them.
		add("by MongoDB a projector", oneProjector, nothing, wire.Mongo)
		add("the standby", theStandby, itGoesOn)
		add("every producer", allProducers, nothing)
		add("every projector", allProjectors, nothing)
		add("everybody", everybody, nothing)
	}
	for _, network := range []struct {
		name string
		is   cable.Conditions
	}{{"has a round trip of 300 ms", slow}, {"loses 2 % of the packets", leak}, {"reorders packets", mixed}, {"does all three", bad}} {
		all = append(all, trouble{name: "everybody's network " + network.name, of: everybody, directions: cable.Both(), is: network.is, meanwhile: itGoesOn})
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
		{"everybody's connections", everybody, nil},
	} {
		all = append(all, trouble{name: dead.whose + " are forgotten", of: dead.of, to: dead.to, forgets: true, meanwhile: itGoesOn})
	}
	return append(all,
		trouble{name: "the leader's network comes and goes", of: theLeader, directions: cable.Both(), is: gone, flaps: true},
		trouble{name: "a projector's network comes and goes", of: oneProjector, directions: cable.Both(), is: gone, flaps: true},
		trouble{name: "everybody's network comes and goes", of: everybody, directions: cable.Both(), is: gone, flaps: true},
	)
}()

// spell is one round: a trouble, and for how long at least.
type spell struct {
	trouble
	lasts time.Duration
	which int // of several projectors
}

func (s spell) String() string { return fmt.Sprintf("%s for %s", s.name, s.lasts) }

// spells are drawn from a seed: every trouble comes once before one comes again. They last from a second, which no time-out
// notices, to longest.
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

// named is a spell by its trouble's name.
func named(name string, lasts time.Duration) spell {
	n := slices.IndexFunc(troubles, func(t trouble) bool { return t.name == name })
	if n < 0 {
		panic("no trouble is called " + name)
	}
	return spell{trouble: troubles[n], lasts: lasts}
}

// tally counts rounds by what happened in them.
type tally struct {
	names  []string
	counts map[string]int
}

func (t *tally) add(name string) {
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	if t.counts[name]++; t.counts[name] == 1 {
		t.names = append(t.names, name)
	}
}

func (t *tally) String() string {
	var text strings.Builder
	for _, name := range t.names {
		fmt.Fprintf(&text, "%-50s %4d\n", name, t.counts[name])
	}
	return text.String()
}
