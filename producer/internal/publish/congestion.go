package publish

import "time"

// window is how many batches may be outstanding at once: congestion control. It grows while more waits to be sent and
// acknowledgements come about as fast as the fastest; shrinks when they come late, because batches then queue up somewhere and more of
// them would only queue longer; and halves when the broker says that it is busy. Late acknowledgements never take it below least; a
// busy broker does, down to one.
//
// It judges by rounds, of as many acknowledgements as may be outstanding, and by the fastest of a round: a single late one
// says more about chance than about queues.
//
// It is pure state, not safe for concurrent use.
type window struct {
	least, most int

	size float64
	// probing: no congestion was seen yet. The window grows by one with each acknowledgement, which doubles it each round;
	// after that by an eighth each round.
	probing bool
	// Of the round: acknowledgements, the fastest, and whether the window kept a batch from being sent.
	acks   int
	round  time.Duration
	wanted bool
	// The fastest acknowledgement of this period and of the one before: the latency when nothing queues up.
	fastest, earlier time.Duration
	period           time.Time // its beginning
	reduced          time.Time // when a busy broker last made it shrink
}

const (
	// measured is how long the fastest acknowledgement counts, at least. A latency that has grown for good is known after twice
	// that.
	measured = 10 * time.Second
	// slack is how much later than twice the fastest an acknowledgement may come, so that scheduling on this machine is not taken
	// for a queue.
	slack = time.Millisecond
	// calm is the least time between two reductions: the refusals of batches that were outstanding together are one.
	calm = 500 * time.Millisecond
)

func newWindow(least, most int) *window {
	return &window{least: least, most: max(least, most), size: float64(least), probing: true}
}

// limit is how many batches may be outstanding.
func (w *window) limit() int { return int(w.size) }

// acknowledged takes the time that a batch was under way. wanted says that the window kept another one from being sent.
func (w *window) acknowledged(now time.Time, latency time.Duration, wanted bool) {
	w.measure(now, latency)
	if w.acks == 0 || latency < w.round {
		w.round = latency
	}
	w.acks++
	w.wanted = w.wanted || wanted
	if w.probing && wanted && !w.late(latency) {
		w.resize(w.size + 1)
	}
	if w.acks < w.limit() {
		return
	}
	switch {
	case w.late(w.round):
		w.probing = false
		if w.size > float64(w.least) { // else it was a busy broker that made it small
			w.resize(max(w.size*0.9, float64(w.least)))
		}
	case w.wanted && !w.probing:
		w.resize(w.size + max(w.size/8, 1))
	}
	w.acks, w.wanted = 0, false
}

// late says that batches queue up on the way.
func (w *window) late(latency time.Duration) bool { return latency > 2*min(w.fastest, w.earlier)+slack }

// throttled records that the broker refused a batch because it is busy.
func (w *window) throttled(now time.Time) {
	if now.Sub(w.reduced) >= calm {
		w.probing, w.reduced = false, now
		w.resize(max(w.size/2, 1))
	}
}

func (w *window) resize(size float64) { w.size = min(size, float64(w.most)) }

func (w *window) measure(now time.Time, latency time.Duration) {
	switch {
	case w.period.IsZero():
		w.period, w.fastest, w.earlier = now, latency, latency
	case now.Sub(w.period) >= measured:
		w.period, w.earlier, w.fastest = now, w.fastest, latency
	default:
		w.fastest = min(w.fastest, latency)
	}
}
