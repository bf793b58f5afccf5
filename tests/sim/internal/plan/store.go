package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// StoreMongoDB keeps the checkpoint in the source's deployment, over connections of its own.
const StoreMongoDB = "mongodb"

// The faults of a checkpoint store in MongoDB, besides those of MongoDB itself.
const (
	SlowCheckpoints Kind = "slow-checkpoints" // each write of a checkpoint takes a while
	FailCheckpoints Kind = "fail-checkpoints" // writes are done, and answered with an error of the write concern
)

// store keeps the checkpoint in MongoDB in every third run whose projections have no program of
// their own, with elections, slow writes and errors of the write concern. The lease of such a store
// never expires.
func (d *drawing) store(r *rand.Rand) {
	s := &d.plan.Settings
	chosen, elections, slow, failed := r.IntN(3) == 0, r.IntN(3), r.IntN(3), r.IntN(3)
	if !chosen || s.Program {
		return
	}
	s.Store, s.Takeover = StoreMongoDB, "break"
	for _, at := range moments(r, elections, d.length) {
		d.plan.Steps = append(d.plan.Steps, Step{At: at, Kind: StepDown, For: between(r, 500*time.Millisecond, 12*time.Second)})
	}
	for _, at := range moments(r, slow, d.length) {
		d.plan.Steps = append(d.plan.Steps, Step{At: at, Kind: SlowCheckpoints, Times: 1 + r.IntN(12), For: between(r, 100*time.Millisecond, 6*time.Second)})
	}
	for _, at := range moments(r, failed, d.length) {
		d.plan.Steps = append(d.plan.Steps, Step{At: at, Kind: FailCheckpoints, Times: 1 + r.IntN(12), Code: concerns[r.IntN(len(concerns))]})
	}
	slices.SortStableFunc(d.plan.Steps, func(a, b Step) int { return cmp.Compare(a.At.Duration, b.At.Duration) })
}

// checkpoints describes the store in words; empty for Blob storage.
func (s Settings) checkpoints() string {
	if s.Store == "" {
		return ""
	}
	return "; checkpoints in " + s.Store
}

// stores describes the fault in words.
func (s Step) stores() string {
	switch s.Kind {
	case SlowCheckpoints:
		return fmt.Sprintf("MongoDB takes %s for each of %d writes of the checkpoint", s.For, s.Times)
	case FailCheckpoints:
		return fmt.Sprintf("MongoDB does %d writes of the checkpoint and answers with write concern error %d", s.Times, s.Code)
	default:
		return s.packs()
	}
}
