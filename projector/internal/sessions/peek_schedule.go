package sessions

// maxGap is the most receives without a peek between two peeks: so late is an unexpected backlog
// found.
const maxGap = 7

// peekSchedule decides when a peek pays. A peek costs a round trip, ten credits on a Standard
// namespace (a message costs one), and the messages' bytes twice; it shows how many more messages
// may be received at once. As long as peeks find some, every receive is preceded by one; each peek
// that finds none doubles the gap to the next.
//
// It never affects order, only how many messages are received at once.
type peekSchedule struct {
	gap       int // receives from one peek to the next
	remaining int // of them still to come
}

// due reports whether to peek now. It is called once per receive.
func (o *peekSchedule) due() bool {
	if o.remaining > 0 {
		o.remaining--
		return false
	}
	return true
}

// observe records the outcome of a peek: whether it found more than would have been received
// without it.
func (o *peekSchedule) observe(more bool) {
	if more {
		o.gap = 0
	} else {
		o.gap = min(2*o.gap+1, maxGap)
	}
	o.remaining = o.gap
}
