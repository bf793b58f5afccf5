package publish

import "time"

// congestionWindow is how many batches may be outstanding at once: congestion control. It grows while more waits to be sent and
// acknowledgements come about as fast as the fastest; shrinks when they come late, because batches then queue up somewhere and more of
// them would only queue longer; and halves when the broker says that it is busy. Late acknowledgements never take it below least; a
// busy broker does, down to one.
//
// It judges by rounds, of as many acknowledgements as may be outstanding, and by the fastest of a round: a single late one
// says more about chance than about queues.
//
// It is pure state, not safe for concurrent use.
type congestionWindow struct {
	minSize, maxSize int

	size float64
	// slowStart: no congestion was seen yet. The window grows by one with each acknowledgement, which doubles it each round;
	// after that by an eighth each round.
	slowStart bool
	// Of the round: acknowledgements, the fastest, and whether the window kept a batch from being sent.
	acks     int
	roundMin time.Duration
	limited  bool
	// The fastest acknowledgement of this period and of the one before: the latency when nothing queues up.
	minLatency, previousMin time.Duration
	periodStart             time.Time // its beginning
	reducedAt               time.Time // when a busy broker last made it shrink
}

const (
	// minPeriod is how long the fastest acknowledgement counts, at least. A latency that has grown for good is known after twice
	// that.
	minPeriod = 10 * time.Second
	// jitter is how much later than twice the fastest an acknowledgement may come, so that scheduling on this machine is not taken
	// for a queue.
	jitter = time.Millisecond
	// reductionInterval is the least time between two reductions: the refusals of batches that were outstanding together are one.
	reductionInterval = 500 * time.Millisecond
)

func newCongestionWindow(least, most int) *congestionWindow {
	return &congestionWindow{minSize: least, maxSize: max(least, most), size: float64(least), slowStart: true}
}

// limit is how many batches may be outstanding.
func (w *congestionWindow) limit() int { return int(w.size) }

// acknowledged takes the time that a batch was under way. wanted says that the window kept another one from being sent.
func (w *congestionWindow) acknowledged(now time.Time, latency time.Duration, wanted bool) {
	w.measure(now, latency)
	if w.acks == 0 || latency < w.roundMin {
		w.roundMin = latency
	}
	w.acks++
	w.limited = w.limited || wanted
	if w.slowStart && wanted && !w.isLate(latency) {
		w.resize(w.size + 1)
	}
	if w.acks < w.limit() {
		return
	}
	switch {
	case w.isLate(w.roundMin):
		w.slowStart = false
		if w.size > float64(w.minSize) { // else it was a busy broker that made it small
			w.resize(max(w.size*0.9, float64(w.minSize)))
		}
	case w.limited && !w.slowStart:
		w.resize(w.size + max(w.size/8, 1))
	}
	w.acks, w.limited = 0, false
}

// isLate says that batches queue up on the way.
func (w *congestionWindow) isLate(latency time.Duration) bool {
	return latency > 2*min(w.minLatency, w.previousMin)+jitter
}

// throttled records that the broker refused a batch because it is busy.
func (w *congestionWindow) throttled(now time.Time) {
	if now.Sub(w.reducedAt) >= reductionInterval {
		w.slowStart, w.reducedAt = false, now
		w.resize(max(w.size/2, 1))
	}
}

func (w *congestionWindow) resize(size float64) { w.size = min(size, float64(w.maxSize)) }

func (w *congestionWindow) measure(now time.Time, latency time.Duration) {
	switch {
	case w.periodStart.IsZero():
		w.periodStart, w.minLatency, w.previousMin = now, latency, latency
	case now.Sub(w.periodStart) >= minPeriod:
		w.periodStart, w.previousMin, w.minLatency = now, w.minLatency, latency
	default:
		w.minLatency = min(w.minLatency, latency)
	}
}
