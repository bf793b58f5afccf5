package leader

import "time"

// Times are those times of an election for which storage can be too slow.
type Times struct{ Heartbeat, Fence, Takeover, Poll time.Duration }

const (
	// minGap is the least time between two of the times, and between two heartbeats where nobody asks for more of them.
	minGap = 500 * time.Millisecond
	// rounding is what times are rounded up to.
	rounding = 100 * time.Millisecond
)

// MaxStorageLatency is how slow one request in a hundred to storage may be before it can cost a healthy leader the lead. When a heartbeat begins,
// what is left of the fence is less by the one before. In what is left a request may stay without an answer; then another one is sent, an
// eighth of a fence later, and is refused because the first was carried out; and a look at the record tells: so the second request and
// the look must be in time, each as slow as that.
func (t Times) MaxStorageLatency() time.Duration {
	return (t.Fence - t.Fence/hedgesPerFence - t.Heartbeat) / 2
}

// FenceFor is the shortest fence, in tenths of a second, that bears requests as slow as this between heartbeats.
func FenceFor(heartbeat, slow time.Duration) time.Duration {
	needed := (heartbeat + 2*slow) * hedgesPerFence / (hedgesPerFence - 1)
	return max(heartbeat+minGap, (needed+rounding-1)/rounding*rounding)
}

// TimesFor are the shortest times that bear requests as slow as this. TAKEOVER_AFTER needs no more than to be behind the fence, however
// slow storage is: a lease is broken only over a record that has not changed since it was looked at.
func TimesFor(slow time.Duration) Times {
	fence := FenceFor(minGap, slow)
	return Times{Heartbeat: minGap, Fence: fence, Takeover: fence + minGap, Poll: fastPoll}
}
