package sessions

import "sync/atomic"

// byteBudget bounds the bytes that the broker sends ahead to one session. The size of a message is
// not known before it arrives, so the sizes of recent messages determine how many to request. A
// message that exceeds the budget arrives alone.
type byteBudget struct {
	bytes int // for each session; 0: no bound
	// typical is the size of recent messages of all sessions, near the largest of them; 0: none has
	// come. Lost updates do no harm.
	typical atomic.Int64
}

// unknown is the size of a message as long as none has come: the largest in Standard.
const unknown = 256 << 10

// messages is how many to ask for, of at most count.
func (b *byteBudget) allow(count int) int {
	if b.bytes == 0 {
		return count
	}
	size := b.typical.Load()
	if size == 0 {
		size = unknown
	}
	return min(count, max(b.bytes/int(size), 1))
}

// observe learns the size of a message: a larger one at once, smaller ones slowly.
func (b *byteBudget) observe(bytes int) {
	size, n := b.typical.Load(), int64(max(bytes, 1))
	if n < size {
		n = size - max((size-n)/64, 1)
	}
	b.typical.Store(n)
}
