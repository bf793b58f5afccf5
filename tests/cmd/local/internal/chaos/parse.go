// Package chaos reads what `--chaos` asks for.
//
// Parsing is pure; who does the harm, and measures the recovery, is package run.
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

// The kinds. To "stop" is SIGSTOP and, a while later, SIGCONT: a process that was frozen and does not know it.
const (
	KillLeader     Kind = "kill-leader"     // SIGKILL to the leading producer
	TermLeader     Kind = "term-leader"     // SIGTERM to the leading producer
	StopLeader     Kind = "stop-leader"     // SIGSTOP to the leading producer, SIGCONT after the duration
	KillProjector  Kind = "kill-projector"  // SIGKILL to one projector
	DropServiceBus Kind = "drop-servicebus" // every connection to Service Bus is cut
	MongoStepDown  Kind = "mongo-stepdown"  // the primary steps down for the duration
	Blob503        Kind = "blob-503"        // Blob storage answers "server busy" for the duration
)

// defaults are the durations of the kinds that last.
var defaults = map[Kind]time.Duration{
	StopLeader:    10 * time.Second,
	MongoStepDown: 2 * time.Second,
	Blob503:       5 * time.Second,
}

var kinds = []Kind{KillLeader, TermLeader, StopLeader, KillProjector, DropServiceBus, MongoStepDown, Blob503}

// OnLeader says that the harm is done to whoever leads, and that a failover must follow.
func (k Kind) OnLeader() bool { return k == KillLeader || k == TermLeader || k == StopLeader }

// Action is one harm at its time.
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

// Failovers is how many actions must be followed by a failover.
func (p Plan) Failovers() int {
	n := 0
	for _, a := range p {
		if a.Kind.OnLeader() {
			n++
		}
	}
	return n
}

// Has says whether an action of the kind is planned.
func (p Plan) Has(k Kind) bool {
	return slices.ContainsFunc(p, func(a Action) bool { return a.Kind == k })
}

// form is what every complaint ends with: how it is written right.
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
	if !slices.Contains(kinds, a.Kind) {
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
	a.For = defaults[a.Kind]
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
		texts[i] = string(k)
	}
	return strings.Join(texts, ", ")
}
