package changes

// batchSizer bounds the memory of the server's responses. Each is held as a whole while its events
// are copied out of it, and by default the server fills 16 MB. A response can only be limited by
// its number of events, so that number follows from their average size.
//
// It is pure state, not safe for concurrent use.
type batchSizer struct {
	average   float64 // recent bytes per event; 0: no event was seen
	requested int32
	remaining int // how many more events to request one by one
}

const (
	targetBytes   = 1 << 20
	minEvents     = 8   // a response costs a round trip
	initialEvents = 100 // before the first event
	maxEvents     = 1000
)

func newBatchSizer() *batchSizer { return &batchSizer{requested: initialEvents} }

// oneByOne requests the next events one by one, as many as the largest response holds. It returns
// false if that was already the case.
func (a *batchSizer) oneByOne() (changed bool) {
	changed = a.remaining == 0
	a.remaining, a.requested = maxEvents, 1
	return changed
}

// record records an event's size. changed reports whether another number of events is to be
// requested from now on.
func (a *batchSizer) record(size int) (changed bool) {
	if a.remaining > 0 {
		if a.remaining--; a.remaining > 0 {
			return false
		}
		a.requested = initialEvents
		return true
	}
	const weight = 1.0 / 16 // the last few dozen events count
	if a.average == 0 {
		a.average = float64(size)
	}
	a.average += (float64(size) - a.average) * weight
	number := int32(min(max(targetBytes/a.average, minEvents), maxEvents))
	if number > a.requested*3/4 && number < a.requested*4/3 {
		return false
	}
	a.requested = number
	return true
}
