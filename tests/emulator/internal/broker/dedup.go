package broker

import (
	"crypto/sha256"
	"time"
)

// history remembers which message ids were accepted within a window. It keeps 16 bytes of
// SHA-256 an id, so that a million ids take tens of megabytes.
type history struct {
	window time.Duration
	known  map[[16]byte]struct{}
	order  []accepted // oldest first from head
	head   int
}

type accepted struct {
	key [16]byte
	at  time.Time
}

func newHistory(window time.Duration) *history {
	return &history{window: window, known: make(map[[16]byte]struct{})}
}

func dedupKey(p *Payload, partitioned bool) [16]byte {
	s := p.MessageID
	if partitioned {
		// On a partitioned entity the partition decides as well.
		key := p.PartitionKey
		if p.HasSessionID {
			key = p.SessionID
		}
		s += "\x00" + key
	}
	sum := sha256.Sum256([]byte(s))
	return [16]byte(sum[:16])
}

// seen reports whether key was accepted within the window before now and, if not, remembers
// it. A duplicate does not extend the window.
func (h *history) seen(key [16]byte, now time.Time) bool {
	for h.head < len(h.order) && now.Sub(h.order[h.head].at) >= h.window {
		delete(h.known, h.order[h.head].key)
		h.head++
	}
	if h.head > 1024 && h.head > len(h.order)/2 {
		h.order = h.order[:copy(h.order, h.order[h.head:])]
		h.head = 0
	}
	if _, ok := h.known[key]; ok {
		return true
	}
	h.known[key] = struct{}{}
	h.order = append(h.order, accepted{key, now})
	return false
}
