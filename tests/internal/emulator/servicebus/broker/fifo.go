package broker

import "container/heap"

// fifo holds messages in sequence order. New ones come with growing sequence numbers; those
// that were taken and came back have smaller numbers than any new one and go first.
type fifo struct {
	fresh    []*message
	head     int
	returned bySequence
}

func (q *fifo) len() int { return len(q.fresh) - q.head + len(q.returned) }

func (q *fifo) push(m *message) { q.fresh = append(q.fresh, m) }

func (q *fifo) putBack(m *message) { heap.Push(&q.returned, m) }

// pop returns the message with the lowest sequence number, or nil.
func (q *fifo) pop() *message {
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

// each calls f for every message, in no particular order.
func (q *fifo) each(f func(*message)) {
	for _, m := range q.returned {
		f(m)
	}
	for _, m := range q.fresh[q.head:] {
		f(m)
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
