package plan

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// CommandPacks is a command of the operator for the packs of a stream: [PacksOn] or [PacksOff].
const CommandPacks Kind = "command-packs"

// The commands of [CommandPacks].
const (
	PacksOn  = "on"
	PacksOff = "off"
)

// packs draws packs in half of the runs, more often with sessions of several aggregates. The
// operator confirms at the start or later that readers know them, and in a third of the runs lets
// no leader send packs for a while.
func (d *drawing) packs(r *rand.Rand) {
	s := &d.plan.Settings
	wanted, buckets := r.IntN(2) == 0, r.IntN(2) == 0
	events, bytes := []int{2, 3, 5, 20, 20}[r.IntN(5)], []int{1000, 4000, 60_000}[r.IntN(3)]
	atOnce, pauses := r.IntN(3) > 0, r.IntN(3) == 0
	later, off, on := between(r, 0, d.length/2), between(r, 10*time.Second, d.length/2), between(r, 2*time.Second, d.length/2)
	if !wanted {
		return
	}
	s.PackEvents, s.PackBytes, s.Format = events, bytes, "json"
	if buckets {
		s.SessionKey = envelope.Buckets(3)
	}
	if atOnce {
		later = Duration{}
	}
	for _, stream := range s.StreamNames() {
		d.plan.Steps = append(d.plan.Steps, Step{At: later, Kind: CommandPacks, Stream: stream, Command: PacksOn})
		if pauses {
			d.plan.Steps = append(d.plan.Steps,
				Step{At: sum(later, off.Duration), Kind: CommandPacks, Stream: stream, Command: PacksOff},
				Step{At: sum(later, off.Duration+on.Duration), Kind: CommandPacks, Stream: stream, Command: PacksOn})
		}
	}
}

// packed describes in words how events are packed; empty if they are not.
func (s Settings) packed() string {
	if s.PackEvents == 0 {
		return ""
	}
	return fmt.Sprintf("; up to %d events or %d bytes in a message", s.PackEvents, s.PackBytes)
}

// packs describes the fault in words.
func (s Step) packs() string {
	if s.Kind == CommandPacks {
		return fmt.Sprintf("the operator requests: packs %s, of %s", s.Command, s.Stream)
	}
	return string(s.Kind)
}
