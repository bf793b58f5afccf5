package scaling

import "time"

// Typical is a replica as deployed: 64 sessions. The rates are a modest guess, of a projection that costs the database
// some work: measure your own, and put messagesPerReplica in proportion.
var Typical = Replica{Start: 20 * time.Second, Sessions: 64, PerSecond: 500, PerSessionASecond: 48}

// WithTarget is the deployed rule with another number of messages for each replica.
func WithTarget(messages int) Rule {
	return Rule{
		MessagesPerReplica: messages, Min: 0, Max: 5,
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

// Scenarios are the four shapes of load that pull the rule in different directions.
var Scenarios = []Scenario{
	{"burst", "an import: 60,000 messages of 2,000 aggregates within a minute", func(second int) map[int]int {
		load := map[int]int{}
		if second >= 60 && second < 120 {
			for i := range 1000 {
				load[(second*1000+i)%2000]++
			}
		}
		return load
	}, 1200},
	{"wave", "900 messages a second for five minutes, of 2,000 aggregates: nearly two replicas' work", func(second int) map[int]int {
		load := map[int]int{}
		if second >= 60 && second < 360 {
			for i := range 900 {
				load[(second*900+i)%2000]++
			}
		}
		return load
	}, 1200},
	{"hot aggregate", "one aggregate gets 60 messages a second for two minutes, more than a session can do; nothing else happens", func(second int) map[int]int {
		if second >= 60 && second < 180 {
			return map[int]int{1: 60}
		}
		return nil
	}, 1200},
	{"trickle", "one message every 40 seconds", func(second int) map[int]int {
		if second%40 == 20 {
			return map[int]int{second: 1}
		}
		return nil
	}, 1200},
}
