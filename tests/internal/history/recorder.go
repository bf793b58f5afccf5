package history

import (
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Recorder takes records as they happen, from any goroutine, and counts them.
type Recorder struct {
	mu sync.Mutex // guards everything below

	history    History
	aggregates map[string]*progress
	messages   map[string]struct{}
	epochs     map[int64]time.Time
	latest     map[string]int64 // the highest epoch of each stream

	counts  Counts
	latency *hdrhistogram.Histogram // microseconds
	steady  *hdrhistogram.Histogram // only of events that no failover delayed
	lost    []failover
}

// progress is how far one aggregate has come.
type progress struct {
	committed []time.Time // by ordinal
	visible   int64
}

// failover is the time from the loss of a leader to its successor's first message.
type failover struct {
	from, to time.Time // to is zero until it has ended
}

// Counts are the numbers of a run so far.
type Counts struct {
	Committed  int64 // events written to the source
	Published  int64 // different messages accepted by the broker
	Duplicates int64 // messages that the broker's duplicate detection dropped
	Repeated   int64 // messages that the broker accepted again because its window had forgotten them
	Stale      int64 // messages with an epoch below one that the broker had seen of their stream
	Visible    int64 // committed events whose effect is visible
	Aggregates int   // with at least one committed event
	LastEpoch  int64 // the highest epoch that the broker has seen

	FirstCommit time.Time // zero before the first
	LastVisible time.Time // zero before the first
	LastMove    time.Time // when the last record was made
}

// Latency is the time from just before the write of an event until its effect is visible, in
// milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// longest is the upper limit of a latency: what is above an hour counts as an hour.
const longest = int64(time.Hour / time.Microsecond)

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	return &Recorder{
		aggregates: map[string]*progress{},
		messages:   map[string]struct{}{},
		epochs:     map[int64]time.Time{},
		latest:     map[string]int64{},
		counts:     Counts{LastMove: time.Now()},
		latency:    hdrhistogram.New(1, longest, 3),
		steady:     hdrhistogram.New(1, longest, 3),
	}
}

// Commit records events of the source, in commit order, just before they are written.
func (r *Recorder) Commit(commits ...Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range commits {
		if r.counts.FirstCommit.IsZero() {
			r.counts.FirstCommit = c.At
		}
		r.history.Committed = append(r.history.Committed, c)
		p := r.aggregates[c.Aggregate]
		if p == nil {
			p = &progress{}
			r.aggregates[c.Aggregate] = p
			r.counts.Aggregates++
		}
		p.committed = append(p.committed, c.At)
		r.counts.Committed++
	}
	r.counts.LastMove = time.Now()
}

// Accept records a message that the broker accepted.
func (r *Recorder) Accept(a Acceptance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Accepted = append(r.history.Accepted, a)
	if a.Duplicate {
		r.counts.Duplicates++
	}
	if _, seen := r.messages[a.MessageID]; !seen {
		r.messages[a.MessageID] = struct{}{}
		r.counts.Published++
	} else if !a.Duplicate {
		r.counts.Repeated++
	}
	if a.Epoch < r.latest[a.Stream] {
		r.counts.Stale++
	}
	r.latest[a.Stream] = max(r.latest[a.Stream], a.Epoch)
	if _, seen := r.epochs[a.Epoch]; !seen {
		r.epochs[a.Epoch] = a.At
		r.counts.LastEpoch = max(r.counts.LastEpoch, a.Epoch)
	}
	r.counts.LastMove = time.Now()
}

// Observe records a change of a read-model document that counts its events.
func (r *Recorder) Observe(o Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Observed = append(r.history.Observed, o)
	if p := r.aggregates[o.Aggregate]; p != nil {
		r.advance(p, o.Events, o.At)
	}
}

// See records that n more events of an aggregate are visible, for read models that do not count
// them.
func (r *Recorder) See(aggregate string, n int64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.aggregates[aggregate]; p != nil {
		r.advance(p, p.visible+n, at)
	}
}

func (r *Recorder) advance(p *progress, events int64, at time.Time) {
	events = min(events, int64(len(p.committed)))
	for ; p.visible < events; p.visible++ {
		committed := p.committed[p.visible]
		us := min(max(at.Sub(committed).Microseconds(), 1), longest)
		_ = r.latency.RecordValue(us) // within the histogram's range by construction
		if !r.failingOver(committed, at) {
			_ = r.steady.RecordValue(us)
		}
		r.counts.Visible++
		r.counts.LastVisible = at
	}
	r.counts.LastMove = time.Now()
}

// failingOver reports whether a failover was in progress at any time between from and to. The
// caller holds mu.
func (r *Recorder) failingOver(from, to time.Time) bool {
	return slices.ContainsFunc(r.lost, func(f failover) bool {
		return !to.Before(f.from) && (f.to.IsZero() || !from.After(f.to))
	})
}

// LeaderLost records that a leader was removed: a failover begins.
func (r *Recorder) LeaderLost(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, failover{from: at})
}

// LeaderReplaced records that the failover that began last is over: at the first message with an
// epoch after the lost leader's, or at the given time without one.
func (r *Recorder) LeaderReplaced(epoch int64, at time.Time) {
	if first, published := r.FirstAfterEpoch(epoch); published {
		at = first
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[len(r.lost)-1].to = at
}

// Progress returns how many events of each aggregate are committed, and how many of them can be
// read.
func (r *Recorder) Progress() (committed, visible map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	committed, visible = map[string]int64{}, map[string]int64{}
	for aggregate, p := range r.aggregates {
		committed[aggregate], visible[aggregate] = int64(len(p.committed)), p.visible
	}
	return committed, visible
}

// Counts returns the numbers so far.
func (r *Recorder) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// FirstAfterEpoch returns when the broker first accepted a message with a later epoch than the
// given one.
func (r *Recorder) FirstAfterEpoch(epoch int64) (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e, t := range r.epochs {
		if e > epoch && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}

// Latency returns the distribution so far.
func (r *Recorder) Latency() Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	return distribution(r.latency)
}

// SteadyLatency returns the distribution so far of the events that no failover delayed: between
// their write and their effect, there was always a leader.
func (r *Recorder) SteadyLatency() Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	return distribution(r.steady)
}

func distribution(h *hdrhistogram.Histogram) Latency {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	if h.TotalCount() == 0 {
		return Latency{}
	}
	return Latency{P50: ms(h.ValueAtQuantile(50)), P99: ms(h.ValueAtQuantile(99)), Max: ms(h.Max())}
}

// Of returns what is recorded of one aggregate.
func (r *Recorder) Of(aggregate string) (h History) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.Committed = slices.DeleteFunc(slices.Clone(r.history.Committed), func(c Commit) bool { return c.Aggregate != aggregate })
	h.Accepted = slices.DeleteFunc(slices.Clone(r.history.Accepted), func(a Acceptance) bool { return a.Aggregate != aggregate })
	h.Observed = slices.DeleteFunc(slices.Clone(r.history.Observed), func(o Observation) bool { return o.Aggregate != aggregate })
	return h
}

// History returns a copy of what was recorded so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	copied := r.history
	copied.Committed, copied.Accepted, copied.Observed = slices.Clone(copied.Committed), slices.Clone(copied.Accepted), slices.Clone(copied.Observed)
	return copied
}
