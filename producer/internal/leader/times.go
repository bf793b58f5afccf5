package leader

import "time"

// Times holds the times of an election for which storage can be too slow.
type Times struct{ Heartbeat, Fence, Takeover, Poll time.Duration }

const (
	// minGap is the minimum gap between two of the times, and the default time between two
	// heartbeats.
	minGap = 500 * time.Millisecond
	// rounding is what times are rounded up to.
	rounding = 100 * time.Millisecond
)

// MaxStorageLatency returns the highest p99 latency of a storage request at which a healthy leader
// never loses its term. A heartbeat starts with one HeartbeatInterval of the fence already used up.
// If the first write times out, a second is sent an eighth of the fence later; if that is refused
// because the first one succeeded, the record is read to find out. Both requests must fit in what
// remains.
func (t Times) MaxStorageLatency() time.Duration {
	return (t.Fence - t.Fence/hedgesPerFence - t.Heartbeat) / 2
}

// FenceFor returns the shortest fence, in tenths of a second, that tolerates requests of this
// latency between heartbeats.
func FenceFor(heartbeat, slow time.Duration) time.Duration {
	needed := (heartbeat + 2*slow) * hedgesPerFence / (hedgesPerFence - 1)
	return max(heartbeat+minGap, (needed+rounding-1)/rounding*rounding)
}

// TimesFor returns the shortest times that tolerate requests of this latency. TAKEOVER_AFTER only
// needs to be after the fence, no matter how slow storage is: a lease is broken only over a record
// that has not changed since it was read.
func TimesFor(slow time.Duration) Times {
	fence := FenceFor(minGap, slow)
	return Times{Heartbeat: minGap, Fence: fence, Takeover: fence + minGap, Poll: fastPoll}
}
