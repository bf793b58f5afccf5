package publish

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCongestionWindow(t *testing.T) {
	const fast, late = 2 * time.Millisecond, 50 * time.Millisecond
	now := time.Now()
	after := func(d time.Duration) time.Time { return now.Add(d) }
	grown := func() *congestionWindow { // at its maximum, without a sign of congestion
		w := newCongestionWindow(4, 64)
		for range 100 {
			w.acknowledged(now, fast, true)
		}
		return w
	}

	t.Run("begins at its least", func(t *testing.T) {
		require.Equal(t, 4, newCongestionWindow(4, 64).limit())
	})
	t.Run("grows by one with each acknowledgement", func(t *testing.T) {
		w := newCongestionWindow(4, 64)
		for range 10 {
			w.acknowledged(now, fast, true)
		}
		require.Equal(t, 14, w.limit())
	})
	t.Run("does not grow while nothing waits", func(t *testing.T) {
		w := newCongestionWindow(4, 64)
		for range 100 {
			w.acknowledged(now, fast, false)
		}
		require.Equal(t, 4, w.limit())
	})
	t.Run("stops at its most", func(t *testing.T) {
		require.Equal(t, 64, grown().limit())
	})
	t.Run("shrinks when acknowledgements come late, once a round, not below its least", func(t *testing.T) {
		w := grown()
		w.acks = 0
		for range 64 { // all outstanding batches
			w.acknowledged(after(time.Second), late, true)
		}
		require.Equal(t, 57, w.limit())
		for range 10_000 {
			w.acknowledged(after(2*time.Second), late, true)
		}
		require.Equal(t, 4, w.limit())
	})
	t.Run("takes a single late acknowledgement for chance", func(t *testing.T) {
		w := grown()
		for n := range 1000 {
			w.acknowledged(after(time.Second), []time.Duration{fast, late}[n%2], true)
		}
		require.Equal(t, 64, w.limit())
	})
	t.Run("grows by an eighth each round after congestion", func(t *testing.T) {
		w := grown()
		for range 2 * 64 {
			w.acknowledged(after(time.Second), late, true)
		}
		w.acks = 0
		before := w.limit()
		for range before {
			w.acknowledged(after(time.Second), fast, true)
		}
		require.InDelta(t, before+before/8, w.limit(), 1)
	})
	t.Run("halves when the broker is busy, once for all that were outstanding, down to one", func(t *testing.T) {
		w := grown()
		for range 32 {
			w.throttled(after(time.Second))
		}
		require.Equal(t, 32, w.limit())
		for n := range 20 {
			w.throttled(after(time.Duration(n+2) * time.Second))
		}
		require.Equal(t, 1, w.limit())
		for range 200 {
			w.acknowledged(after(time.Minute), fast, true)
		}
		require.Greater(t, w.limit(), 4)
	})
	t.Run("takes a way that has become longer for what it is", func(t *testing.T) {
		w := grown()
		low := w.limit()
		for second := range 60 {
			for range 64 {
				w.acknowledged(after(time.Duration(second)*time.Second), late, true)
			}
			low = min(low, w.limit())
		}
		require.Less(t, low, 64)
		require.Equal(t, 64, w.limit())
	})
}
