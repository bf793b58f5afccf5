package pipeline

import (
	"maps"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

const (
	// failuresKept is how long the failure of an event is remembered while other projectors have
	// its session: with every exchange of the session, each of them has it for maxStuck at most.
	failuresKept = time.Hour
	// pruneEvery is how often events that no longer wait here are forgotten.
	pruneEvery = time.Minute
	// maxGapPause bounds the time between two attempts to apply an event that misses a version.
	maxGapPause = 2 * time.Second
)

// decider decides what to do with the changes of a batch that an attempt to write it left
// undecided. It performs no I/O and reads no clock. It is safe for concurrent use.
//
// Guaranteed: an aggregate is parked for a failure of its own only after attempts have failed at
// the beginning and at the end of undecidedAfter, while changes of other aggregates kept being
// committed, with no gap between those commits longer than commitPause. A missing version is given
// up only after this process has seen the event wait for versionGapWait, with no interruption
// longer than that. Not guaranteed: that all processes agree. Each decides by what it has seen.
type decider struct {
	undecidedAfter time.Duration // 0: an event may fail for any time
	// commitPause is the longest pause between two commits that is no outage. It is longer than
	// maxStuck if undecidedAfter permits: at rest, only sessions that are accepted again commit.
	commitPause    time.Duration
	versionGapWait time.Duration

	mu         sync.Mutex
	waiting    map[waitKey]*wait // guarded by mu
	pruned     time.Time         // guarded by mu
	lastCommit time.Time         // of any aggregate; guarded by mu
	// steady is the first commit that is followed by others up to lastCommit, with no gap longer
	// than commitPause; guarded by mu.
	steady time.Time
}

// waitReason is why an event waits.
type waitReason uint8

const (
	eventFails     waitReason = iota // it could not be applied, for a reason of its own
	versionMissing                   // an earlier version of its aggregate has not come
	bodyMissing                      // its body could not be fetched
)

// waitKey names the event that an aggregate waits for. stream is set for versionMissing alone.
type waitKey struct {
	reason            waitReason
	stream, aggregate string
}

// wait is how long an event has waited, and when it is tried again.
type wait struct {
	messageID string
	first     time.Time // attempt
	counted   time.Time // eventFails: the first attempt in the present time of steady commits
	seen      time.Time // the last attempt
	due       time.Time // the next attempt
	backoff   retry.Backoff
	logged    time.Time
}

func newDecider(undecidedAfter, versionGapWait time.Duration) *decider {
	return &decider{
		undecidedAfter: undecidedAfter, versionGapWait: versionGapWait, waiting: make(map[waitKey]*wait),
		commitPause: max(undecidedAfter/2, min(undecidedAfter*3/4, maxStuck+maxStuck/10)),
	}
}

func (d *decider) prune(now time.Time) {
	if now.Sub(d.pruned) >= pruneEvery {
		d.pruned = now
		maps.DeleteFunc(d.waiting, func(key waitKey, w *wait) bool { return d.outdated(now, key, w) })
	}
}
