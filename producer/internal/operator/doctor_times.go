package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/checkup"
)

const (
	// maxHeartbeats and maxRehearsal limit the number of consecutive heartbeats and their total
	// time.
	maxHeartbeats = 100
	maxRehearsal  = 3 * time.Second
)

// rehearseHeartbeats writes a record repeatedly, as a leader's heartbeats do, and returns how long
// each write took.
func (s *Stream) rehearseHeartbeats(ctx context.Context, scratch *checkpoint.Checkpoint, record checkpoint.Record, leaseID string, tag store.Tag) (took []time.Duration, err error) {
	for began := time.Now(); len(took) < maxHeartbeats && time.Since(began) < maxRehearsal; {
		s.Progress.Set("doctor: heartbeats", int64(len(took)), maxHeartbeats)
		at := time.Now()
		if tag, err = scratch.Write(ctx, record, leaseID, tag); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	return took, nil
}

// examineTimes compares the duration of heartbeats with the times of the election: only storage
// limits them. Opening connections is not subject to the fence, and sends continue for as long as
// heartbeats do.
func (s *Stream) examineTimes(e *checkup.Findings, took []time.Duration) {
	const check = "leadership times"
	slices.Sort(took)
	most := took[max(len(took)-2, 0)] // one slow heartbeat is tolerated: the second request is for that
	shortest := leader.TimesFor(most)
	measured := fmt.Sprintf("of %d heartbeats, half took at most %s and all but one at most %s", len(took), roundDuration(took[len(took)/2]), roundDuration(most))
	set, bears := s.Checks.Times, s.Checks.Times.MaxStorageLatency()
	if bears < most {
		fence := leader.FenceFor(set.Heartbeat, most)
		e.Problem(check, fmt.Sprintf("set FENCE_AFTER=%s TAKEOVER_AFTER=%s or more, or the shortest sufficient times, %s; or use storage that is nearer",
			fence, fence+set.Takeover-set.Fence, formatTimes(shortest)),
			"%s; FENCE_AFTER=%s and HEARTBEAT_INTERVAL=%s tolerate at most %s, so slow storage alone can cost a healthy leader its term",
			measured, set.Fence, set.Heartbeat, roundDuration(max(bears, 0)))
		return
	}
	e.OK(check, "%s; the present times tolerate %s: %s. The shortest sufficient times: %s", measured, roundDuration(bears), formatTimes(set), formatTimes(shortest))
}

func roundDuration(d time.Duration) time.Duration {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func formatTimes(t leader.Times) string {
	return fmt.Sprintf("HEARTBEAT_INTERVAL=%s FENCE_AFTER=%s TAKEOVER_AFTER=%s STANDBY_POLL=%s", t.Heartbeat, t.Fence, t.Takeover, t.Poll)
}
