package broker

import (
	"container/heap"
	"slices"
	"sort"
)

// fifo holds messages in sequence order. New ones come with growing sequence numbers; those
// that were taken and came back have smaller numbers than any new one and go first.
type fifo struct {
	fresh    []*message
	head     int
	returned bySequence
	removed  int // still in there, to be skipped
}

func (q *fifo) len() int { return len(q.fresh) - q.head + len(q.returned) - q.removed }

func (q *fifo) push(m *message) { q.fresh = append(q.fresh, m) }

func (q *fifo) putBack(m *message) { heap.Push(&q.returned, m) }

// remove takes a message out from wherever it is. Its place is only marked, and cleared away with
// others: a queue keeps at most as many marks as messages, or 64.
func (q *fifo) remove(m *message) {
	m.removed = true
	q.removed++
	if q.removed <= max(64, q.len()) {
		return
	}
	gone := func(m *message) bool { return m.removed }
	q.fresh = slices.DeleteFunc(q.fresh[q.head:], gone)
	q.head = 0
	q.returned = slices.DeleteFunc(q.returned, gone)
	heap.Init(&q.returned)
	q.removed = 0
}

// pop returns the message with the lowest sequence number, or nil.
func (q *fifo) pop() *message {
	for {
		m := q.take()
		if m == nil || !m.removed {
			return m
		}
		q.removed--
	}
}

func (q *fifo) take() *message {
	if len(q.returned) > 0 {
		return heap.Pop(&q.returned).(*message)
	}
	if q.head == len(q.fresh) {
		return nil
	}
	m := q.fresh[q.head]
	q.fresh[q.head] = nil
	q.head++
	switch {
	case q.head == len(q.fresh):
		q.fresh, q.head = q.fresh[:0], 0
		if cap(q.fresh) > 1024 {
			q.fresh = nil
		}
	case q.head > 64 && q.head > len(q.fresh)/2:
		n := copy(q.fresh, q.fresh[q.head:])
		clear(q.fresh[n:])
		q.fresh, q.head = q.fresh[:n], 0
	}
	return m
}

// from calls f, in no particular order, for the first n messages from a sequence number on, and
// perhaps for others.
func (q *fifo) from(seq int64, n int, f func(*message)) {
	for _, m := range q.returned {
		if !m.removed {
			f(m)
		}
	}
	fresh := q.fresh[q.head:]
	at := sort.Search(len(fresh), func(i int) bool { return fresh[i].seq >= seq })
	for _, m := range fresh[at:] {
		if n <= 0 {
			return
		}
		if !m.removed {
			f(m)
			n--
		}
	}
}

type bySequence []*message

func (h bySequence) Len() int           { return len(h) }
func (h bySequence) Less(i, j int) bool { return h[i].seq < h[j].seq }
func (h bySequence) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *bySequence) Push(x any)        { *h = append(*h, x.(*message)) }
func (h *bySequence) Pop() any {
	old := *h
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return m
}
