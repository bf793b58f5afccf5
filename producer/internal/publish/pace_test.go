package publish

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A broker that grants so many messages a second, and forfeits what is left of them, accepts more
// than three quarters of them, however many a batch has. Without a pace it would be half of them.
func TestPaceUsesWhatTheBrokerGrants(t *testing.T) {
	const (
		lanes   = 16
		seconds = 120
		pause   = 2 * time.Second // after a refusal
	)
	for _, batch := range []int{1, 7, 100} {
		for _, grant := range []int{20, 333, 1000} {
			var p pace
			begun := time.Unix(0, 0)
			var busyUntil [lanes]time.Time
			left, accepted := 0, 0
			for at := range time.Duration(seconds * 1000) {
				now := begun.Add(at * time.Millisecond)
				if at%1000 == 0 {
					left = min(grant, left+grant)
				}
				for lane := range busyUntil {
					if busyUntil[lane].After(now) || p.wait(now) > 0 {
						continue
					}
					p.begin(now)
					p.filled(batch)
					if left <= 0 {
						p.throttled(now)
						busyUntil[lane] = now.Add(pause)
						continue
					}
					left -= batch // the last batch of a second may exceed the grant, and the next second pays
					accepted += batch
					p.acknowledged(now, batch)
					busyUntil[lane] = now.Add(time.Millisecond)
				}
			}
			require.Greater(t, accepted, seconds*grant*3/4, "of %d, batches of %d, %d a second", seconds*grant, batch, grant)
		}
	}
}

// A pace that is no longer needed goes: it rises while nothing is refused.
func TestPaceRisesWithoutRefusals(t *testing.T) {
	var p pace
	now := time.Unix(0, 0)
	require.Zero(t, p.wait(now))
	p.acknowledged(now, 100)
	p.throttled(now)
	for range 10 { // of batches that were sent together: they count once
		p.throttled(now.Add(time.Millisecond))
	}
	require.InDelta(t, 100, p.rate, 1)
	for range 600 {
		now = now.Add(time.Second)
		p.acknowledged(now, 1)
	}
	require.Greater(t, p.rate, 1e6)
}
