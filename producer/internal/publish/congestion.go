package publish

import "time"

// congestionWindow limits how many batches may be outstanding at once. It grows while more batches
// wait and acknowledgements are about as fast as the fastest. It shrinks when they are slow,
// because batches then queue up somewhere on the way and more of them would only queue longer. It
// halves when the broker reports that it is busy. Slow acknowledgements never reduce it below
// minSize; a busy broker can reduce it to one.
//
// It decides once a round, that is once per as many acknowledgements as may be outstanding, by the
// fastest of the round: a single slow acknowledgement may be chance rather than a queue.
//
// It is pure state, not safe for concurrent use.
type congestionWindow struct {
	minSize, maxSize int

	size float64
	// slowStart is true until the first sign of congestion. During slow start the window grows by
	// one with each acknowledgement, which doubles it each round; afterwards by an eighth each
	// round.
	slowStart bool
	// State of the round: its acknowledgements, the fastest of them, and whether the window kept a
	// batch from being sent.
	acks     int
	roundMin time.Duration
	limited  bool
	// The fastest acknowledgement of this period and of the previous one: the latency without
	// queueing.
	minLatency, previousMin time.Duration
	periodStart             time.Time // of the current period
	reducedAt               time.Time // when a busy broker last reduced the window
}

const (
	// minPeriod is the minimum time for which the fastest acknowledgement counts. A permanently
	// higher latency is recognised after at most twice that.
	minPeriod = 10 * time.Second
	// jitter is how much slower than twice the fastest an acknowledgement may be, so that
	// scheduling delays on this machine are not taken for a queue.
	jitter = time.Millisecond
	// reductionInterval is the minimum time between two reductions, so that the refusals of batches
	// that were outstanding together count once.
	reductionInterval = 500 * time.Millisecond
)

func newCongestionWindow(least, most int) *congestionWindow {
	return &congestionWindow{minSize: least, maxSize: max(least, most), size: float64(least), slowStart: true}
}

// limit returns how many batches may be outstanding.
func (w *congestionWindow) limit() int { return int(w.size) }

// acknowledged records the latency of an acknowledged batch. wanted reports whether the window kept
// another batch from being sent.
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
		if w.size > float64(w.minSize) { // otherwise a busy broker made it small
			w.resize(max(w.size*0.9, float64(w.minSize)))
		}
	case w.limited && !w.slowStart:
		w.resize(w.size + max(w.size/8, 1))
	}
	w.acks, w.limited = 0, false
}

// isLate reports whether a latency indicates that batches queue up on the way.
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
