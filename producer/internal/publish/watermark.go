package publish

import (
	"context"
	"sync"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
)

// Watermark tracks up to where every event has been acknowledged, while acknowledgements arrive in
// any order. It is safe for concurrent use.
//
// Memory: one entry for each event between the oldest unacknowledged one and the newest, and at
// most one more between two of them. The caller limits the events that it adds.
type Watermark struct {
	mu sync.Mutex
	// entries is a ring: entries[head] is the oldest entry outside the acknowledged prefix; its
	// sequence number is first.
	entries  []entry
	head     int
	count    int
	first    uint64
	progress checkpoint.Progress
	drained  chan struct{} // closed once every entry is acknowledged; nil if nothing waits for that
}

type entry struct {
	after   checkpoint.Progress
	acked   bool
	event   bool // counts as published, as opposed to progress without an event
	dropped bool // an event that does not count as published
}

// NewWatermark returns a watermark that starts at a stream's earlier progress.
func NewWatermark(start checkpoint.Progress) *Watermark {
	return &Watermark{progress: start, entries: make([]entry, 64)}
}

// Add registers the next event, in stream order, with the progress that is made once it and
// everything before it are acknowledged. It returns the event's sequence number for
// [Watermark.Ack].
func (w *Watermark) Add(after checkpoint.Progress) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.push(entry{after: after, event: true})
}

// Pass registers progress that needs no acknowledgement of its own.
func (w *Watermark) Pass(after checkpoint.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count > 0 {
		// Consecutive passes are merged: an idle hour must not grow the ring behind one stuck
		// event.
		if last := w.at(w.count - 1); last.acked && !last.event {
			last.after = after
			return
		}
	}
	w.push(entry{after: after, acked: true})
	w.advance()
}

// Ack marks events as acknowledged, each sequence number once. It returns by how many events the
// acknowledged prefix has grown: those are forgotten.
func (w *Watermark) Ack(sequence ...uint64) (reached int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range sequence {
		w.at(int(s - w.first)).acked = true
	}
	return w.advance()
}

// Drop records that an event is stored elsewhere: it does not count as published. Ack must follow.
func (w *Watermark) Drop(sequence uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(int(sequence - w.first)).dropped = true
}

// Wait waits until everything that was registered is acknowledged, or until ctx ends: its cause is
// the error.
func (w *Watermark) Wait(ctx context.Context) error {
	for {
		w.mu.Lock()
		if w.count == 0 {
			w.mu.Unlock()
			return nil
		}
		if w.drained == nil {
			w.drained = make(chan struct{})
		}
		drained := w.drained
		w.mu.Unlock()
		select {
		case <-drained:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Progress returns the end of the contiguous acknowledged prefix, which a checkpoint may contain.
func (w *Watermark) Progress() checkpoint.Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress
}

func (w *Watermark) push(e entry) uint64 {
	if w.count == len(w.entries) {
		grown := make([]entry, 2*len(w.entries))
		n := copy(grown, w.entries[w.head:])
		copy(grown[n:], w.entries[:w.head])
		w.entries, w.head = grown, 0
	}
	w.count++
	*w.at(w.count - 1) = e
	return w.first + uint64(w.count-1)
}

func (w *Watermark) at(i int) *entry { return &w.entries[(w.head+i)%len(w.entries)] }

// advance advances the prefix and returns by how many events.
func (w *Watermark) advance() (events int64) {
	for w.count > 0 && w.at(0).acked {
		e := w.at(0)
		published := w.progress.Published
		if e.event {
			events++
			if !e.dropped {
				published++
			}
		}
		w.progress = e.after
		w.progress.Published = published
		*e = entry{}
		w.head = (w.head + 1) % len(w.entries)
		w.count--
		w.first++
	}
	if w.count == 0 && w.drained != nil {
		close(w.drained)
		w.drained = nil
	}
	return events
}
