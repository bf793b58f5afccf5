// Package chaos parses the list of `--chaos`.
//
// Parsing is pure; package run applies the harm and measures the recovery.
package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of harm.
type Kind string

// These are the kinds. To "stop" is SIGSTOP, followed by SIGCONT: the process was frozen and does
// not notice.
const (
	LoseLeader      Kind = "lose-leader"
	KillLeader      Kind = "kill-leader"
	CrashLeader     Kind = "crash-leader"
	TermLeader      Kind = "term-leader"
	StopLeader      Kind = "stop-leader"
	KillProjector   Kind = "kill-projector"
	DropServiceBus  Kind = "drop-servicebus"
	BusyServiceBus  Kind = "servicebus-busy"
	SlowServiceBus  Kind = "servicebus-slow"
	FlakyServiceBus Kind = "servicebus-flaky"
	LoseAck         Kind = "lose-ack"
	SlowAck         Kind = "slow-ack"
	DetachLinks     Kind = "detach-links"
	ExpireLocks     Kind = "expire-locks"
	MongoStepDown   Kind = "mongo-stepdown"
	Blob503         Kind = "blob-503"
	Poison          Kind = "poison"
)

// Description is a kind of harm, for people.
type Description struct {
	Kind  Kind
	Lasts time.Duration // unless the plan specifies it; 0: it is over at once
	Says  string
}

// kinds are all kinds.
var kinds = []Description{
	{LoseLeader, 0, "SIGKILL to the leading producer and its parent, as when a machine is lost"},
	{KillLeader, 0, "the same as lose-leader"},
	{CrashLeader, 0, "SIGKILL to the leading producer alone, as by a panic or the lack of memory"},
	{TermLeader, 0, "SIGTERM to the leading producer"},
	{StopLeader, 10 * time.Second, "SIGSTOP to the leading producer, and SIGCONT after the duration"},
	{KillProjector, 0, "SIGKILL to one projector"},
	{DropServiceBus, 0, "every connection to Service Bus is cut"},
	{BusyServiceBus, 2 * time.Second, "Service Bus throttles: sends, accepts and management requests are refused as busy"},
	{SlowServiceBus, 3 * time.Second, "every operation of Service Bus takes 50 to 150 ms more"},
	{FlakyServiceBus, 5 * time.Second, "one in fifty operations is refused as busy, loses its answer, its link or its connection"},
	{LoseAck, 0, "the next send is stored, and its connection cut in place of the answer"},
	{SlowAck, 3 * time.Second, "every answer to a send takes 500 ms more"},
	{DetachLinks, 0, "Service Bus detaches every link to the topic or queue"},
	{ExpireLocks, 0, "every lock on a message or session runs out"},
	{MongoStepDown, 2 * time.Second, "the primary steps down for the duration"},
	{Blob503, 5 * time.Second, "Blob storage answers \"server busy\" for the duration"},
	{Poison, 5 * time.Second, "the read model refuses an event: its aggregate is parked, until a replay (of --chaos: after the duration)"},
}

// Help lists the kinds for people, one a line.
func Help() string {
	var b strings.Builder
	for _, k := range kinds {
		name := string(k.Kind)
		if k.Lasts > 0 {
			name += fmt.Sprintf("[:%s]", k.Lasts)
		}
		fmt.Fprintf(&b, "  %-22s %s\n", name, k.Says)
	}
	return b.String()
}

// Kinds returns all kinds of harm.
func Kinds() []Description { return slices.Clone(kinds) }

// OnServers reports whether the embedded servers apply the harm.
func (k Kind) OnServers() bool { return !k.OnLeader() && k != KillProjector }

// TakesLocks reports whether the harm may leave a session locked without a holder until its lock
// expires.
func (k Kind) TakesLocks() bool {
	return k == KillProjector || k == DropServiceBus || k == FlakyServiceBus || k == LoseAck
}

// OnLeader reports whether the harm hits the leader, so that a failover must follow.
func (k Kind) OnLeader() bool {
	return k == LoseLeader || k == KillLeader || k == CrashLeader || k == TermLeader || k == StopLeader
}

// Action is one harm and its time.
type Action struct {
	Kind Kind
	At   time.Duration // counted from the first insert
	For  time.Duration // 0 for the kinds that are over at once
}

func (a Action) String() string {
	s := fmt.Sprintf("%s@%s", a.Kind, a.At)
	if a.For > 0 {
		s += ":" + a.For.String()
	}
	return s
}

// Plan is a list of actions by time; those of the same time keep the order they were written in.
type Plan []Action

// Failovers returns how many actions must be followed by a failover.
func (p Plan) Failovers() int {
	n := 0
	for _, a := range p {
		if a.Kind.OnLeader() {
			n++
		}
	}
	return n
}

// Has reports whether an action of the kind is planned.
func (p Plan) Has(k Kind) bool {
	return slices.ContainsFunc(p, func(a Action) bool { return a.Kind == k })
}

// form is the end of every error: the correct form.
const form = "write NAME@TIME or NAME@TIME:DURATION, with commas between, such as kill-leader@2s,stop-leader@5s:10s"

// Parse reads a list such as "kill-leader@2s,stop-leader@5s:10s". An empty text is an empty plan.
func Parse(text string) (Plan, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var plan Plan
	for part := range strings.SplitSeq(text, ",") {
		a, problem := parseAction(strings.TrimSpace(part))
		if problem != "" {
			return nil, fmt.Errorf("%q: %s: %s", strings.TrimSpace(part), problem, form)
		}
		plan = append(plan, a)
	}
	slices.SortStableFunc(plan, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return plan, nil
}

func parseAction(text string) (a Action, problem string) {
	if text == "" {
		return a, "there is nothing between two commas, or at an end"
	}
	name, when, timed := strings.Cut(text, "@")
	a.Kind = Kind(name)
	known := slices.IndexFunc(kinds, func(d Description) bool { return d.Kind == a.Kind })
	if known < 0 {
		return a, fmt.Sprintf("there is no chaos named %q; there are %s", name, names())
	}
	if !timed || when == "" {
		return a, "it does not say when"
	}
	at, length, lasting := strings.Cut(when, ":")
	var err error
	if a.At, err = time.ParseDuration(at); err != nil || a.At < 0 {
		return a, fmt.Sprintf("%q is no time such as 2s or 1500ms", at)
	}
	a.For = kinds[known].Lasts
	if !lasting {
		return a, ""
	}
	if a.For == 0 {
		return a, name + " is over at once and takes no duration"
	}
	if a.For, err = time.ParseDuration(length); err != nil || a.For <= 0 {
		return a, fmt.Sprintf("%q is no duration such as 10s", length)
	}
	return a, ""
}

func names() string {
	texts := make([]string, len(kinds))
	for i, k := range kinds {
		texts[i] = string(k.Kind)
	}
	return strings.Join(texts, ", ")
}
