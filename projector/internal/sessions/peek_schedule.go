package sessions

// maxGap is the most receives without a peek between two peeks: so late is an unexpected backlog found.
const maxGap = 7

// peekSchedule decides when a peek pays. It costs a round trip, ten credits on a Standard namespace (a message costs one), and the
// messages' bytes twice; it tells how many more messages may be received at once. While peeks find some they
// are made each time; each that finds none doubles the gap to the next one.
//
// What it decides is never a matter of order: only of how many messages are received at once.
type peekSchedule struct {
	gap       int // receives from one peek to the next
	remaining int // of them still to come
}

// due says whether to peek now; it is asked once a receive.
func (o *peekSchedule) due() bool {
	if o.remaining > 0 {
		o.remaining--
		return false
	}
	return true
}

// observe records the outcome of a peek: whether it found more than would have been received without it.
func (o *peekSchedule) observe(more bool) {
	if more {
		o.gap = 0
	} else {
		o.gap = min(2*o.gap+1, maxGap)
	}
	o.remaining = o.gap
}
