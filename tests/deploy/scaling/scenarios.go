package scaling

import "time"

// Typical is a replica of the size small, as deployed: 0.25 of a processor, 64 sessions. The costs
// of accepts and events are measured (tests/bench/README.md, at 2 ms a round trip, including half
// of the embedded servers' work: 70 µs of processor for an event in a session with many, 491 µs
// for one with a session of its own, so that an accept is the difference). A batch is assumed to
// wait for the services for five round trips of 4 ms. A projection that costs more is slower:
// measure your own.
var Typical = Replica{
	Start: 20 * time.Second, Sessions: 64, Processor: 250 * time.Millisecond,
	PerAccept: 421 * time.Microsecond, PerEvent: 70 * time.Microsecond, Batch: 100, PerBatch: 20 * time.Millisecond,
}

// Tiers are the two tiers that can be deployed.
var Tiers = []Tier{{Name: "Standard", Credits: 1000}, {Name: "Premium"}}

// WithTarget returns the tier's deployed rule with another number of messages for each replica.
func (t Tier) WithTarget(messages int) Rule {
	return Rule{
		MessagesPerReplica: messages, Min: 1, Max: 5,
		Polling: 15 * time.Second, Cooldown: 300 * time.Second, Stabilization: 300 * time.Second,
	}
}

// Scenario is a load with a name.
type Scenario struct {
	Name    string
	What    string
	Load    Load
	Seconds int
}

// inTurn returns a load of 2,000 aggregates in turn, from second 60 until the end. step is how many
// aggregates on a second begins.
func inTurn(end, step int, rate func(second int) int) Load {
	return func(second int) map[int]int {
		load := map[int]int{}
		if second >= 60 && second < end {
			for i := range rate(second) {
				load[(second*step+i)%2000]++
			}
		}
		return load
	}
}

func constant(rate int) func(second int) int { return func(int) int { return rate } }

// Scenarios are the shapes of load that require different rules.
var Scenarios = []Scenario{
	{"burst", "an import: 60,000 changes of 2,000 aggregates within a minute", inTurn(120, 1000, constant(1000)), 1200},
	{"wave", "900 changes a second for five minutes, of 2,000 aggregates", inTurn(360, 900, constant(900)), 1200},
	{"plateau", "200 changes a second for five minutes, of 2,000 aggregates in turn: within Standard, and each a session of its own", inTurn(360, 200, constant(200)), 1200},
	{
		"climb", "from 100 to 800 changes a second within seven minutes, of 2,000 aggregates in turn: past what one replica does",
		inTurn(480, 800, func(second int) int { return 100 + (second-60)*700/420 }), 1200,
	},
	{"hot aggregate", "one aggregate gets 3,000 changes a second for a minute, more than a session can do; nothing else happens", func(second int) map[int]int {
		if second >= 60 && second < 120 {
			return map[int]int{1: 3000}
		}
		return nil
	}, 1200},
	{"trickle", "one change every 40 seconds", func(second int) map[int]int {
		if second%40 == 20 {
			return map[int]int{second: 1}
		}
		return nil
	}, 1200},
}
