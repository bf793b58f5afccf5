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

// A pace that is no longer needed goes: it rises while nothing is refused, and then limits nothing.
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
	for seconds := 0; p.rate > 0; seconds++ {
		require.Less(t, seconds, 30)
		now = now.Add(time.Second)
		p.acknowledged(now, 1)
	}
}

// A broker that refuses everything for an hour is asked each second, and when it has ended, half a
// minute later it gets what it accepts.
func TestPaceOutlastsABrokerThatRefusesEverything(t *testing.T) {
	const granted = 20_000
	for _, batches := range [][]int{{1}, {1, 4500}, {100}} {
		var p pace
		now, n := time.Unix(0, 0), 0
		next := func() int {
			messages := batches[n%len(batches)]
			n++
			wait := max(p.wait(now), time.Millisecond)
			require.LessOrEqual(t, wait, paceSlowest)
			now = now.Add(wait)
			p.begin(now)
			p.filled(messages)
			return messages
		}
		for range 3600 {
			next()
			p.throttled(now)
		}
		for over := now.Add(30 * time.Second); now.Before(over); {
			p.acknowledged(now, next())
		}
		require.True(t, p.rate == 0 || p.rate > granted, p.rate)
	}
}
