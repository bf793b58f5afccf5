package broker

import (
	"container/heap"
	"time"
)

// deadline is something that happens to an entity at a time unless it was settled before; the
// caller that pops it checks whether it still applies.
type deadline struct {
	at       time.Time
	seq      int64     // of msg: what runs out at the same time does so in order
	msg      *message  // its lock runs out, if it still has token
	token    Token     //
	sess     *session  // its lock runs out, if holder still has it
	holder   *Receiver //
	freed    *session  // it can be accepted again
	waiter   *Receiver // it has waited long enough for a session
	schedule *scheduled
}

// deadlines is a heap by time. Renewed and settled locks leave stale entries behind, which
// compact removes once they are the majority.
type deadlines struct {
	heap deadlineHeap
	// earlier is called when the first deadline moved forward; it must not block.
	earlier func()
}

func (d *deadlines) add(x deadline) {
	first := len(d.heap) == 0 || x.at.Before(d.heap[0].at)
	heap.Push(&d.heap, x)
	if first && d.earlier != nil {
		d.earlier()
	}
}

// due removes and returns the next deadline that is not after now.
func (d *deadlines) due(now time.Time) (deadline, bool) {
	if len(d.heap) == 0 || d.heap[0].at.After(now) {
		return deadline{}, false
	}
	return heap.Pop(&d.heap).(deadline), true
}

func (d *deadlines) next() (time.Time, bool) {
	if len(d.heap) == 0 {
		return time.Time{}, false
	}
	return d.heap[0].at, true
}

// compact drops the entries keep refuses when there are many more than live.
func (d *deadlines) compact(live int, keep func(*deadline) bool) {
	if len(d.heap) < 1024 || len(d.heap) < 4*live {
		return
	}
	kept := d.heap[:0]
	for i := range d.heap {
		if keep(&d.heap[i]) {
			kept = append(kept, d.heap[i])
		}
	}
	clear(d.heap[len(kept):])
	d.heap = kept
	heap.Init(&d.heap)
}

type deadlineHeap []deadline

func (h deadlineHeap) Len() int { return len(h) }

func (h deadlineHeap) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return h[i].seq < h[j].seq
}

func (h deadlineHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *deadlineHeap) Push(x any)   { *h = append(*h, x.(deadline)) }
func (h *deadlineHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = deadline{}
	*h = old[:len(old)-1]
	return x
}
