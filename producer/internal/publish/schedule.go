package publish

import (
	"cmp"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// item is one event on its way through a lane.
type item struct {
	change   envelope.Change
	sequence uint64 // in the watermark
	size     int64  // counted against the bound on bytes
	session  string
	span     trace.Span            // nil when nobody traces it
	message  *azservicebus.Message // encoded at the first attempt to put it into a batch
}

// schedule is what waits to be sent: a FIFO for each session, and the sessions in the order in which their turn comes. A
// session that a lane has leased has no turn until the lane releases it, which is what keeps its order: two batches of
// one session are never outstanding at once.
//
// It is pure state, not safe for concurrent use.
type schedule struct {
	sessions map[string]*backlog
	turns    []*backlog // those not leased; turns[head:] in order
	head     int
	ready    int  // items of the sessions that have a turn
	waiting  int  // items of all sessions
	hasCut   bool // nothing at cutAt or behind it has a turn any more
	cutAt    uint64
}

// backlog is what waits of one session: never empty while it has a turn.
type backlog struct {
	session string
	items   []*item
	leased  bool
}

func newSchedule() *schedule { return &schedule{sessions: map[string]*backlog{}} }

// push appends an item to its session, whether leased or not.
func (s *schedule) push(i *item) {
	b := s.sessions[i.session]
	if b == nil {
		b = &backlog{session: i.session}
		s.sessions[i.session] = b
		s.turns = append(s.turns, b)
	}
	b.items = append(b.items, i)
	s.waiting++
	if !b.leased {
		s.ready++
	}
}

// lease takes the session whose turn it is, nil when there is none.
func (s *schedule) lease() *backlog {
	if s.head == len(s.turns) {
		return nil
	}
	b := s.turns[s.head]
	s.turns[s.head] = nil
	s.head++
	if s.head == len(s.turns) {
		s.turns, s.head = s.turns[:0], 0
	} else if s.head >= 1024 && s.head*2 >= len(s.turns) {
		s.turns = slices.Delete(s.turns, 0, s.head)
		s.head = 0
	}
	b.leased = true
	s.ready -= len(b.items)
	return b
}

// leaseEmpty leases a session that has nothing, so that what comes of it waits; nil where it has something.
func (s *schedule) leaseEmpty(session string) *backlog {
	if s.sessions[session] != nil {
		return nil
	}
	b := &backlog{session: session, leased: true}
	s.sessions[session] = b
	return b
}

// take removes the first n items of a leased session: they are in a batch.
func (s *schedule) take(b *backlog, n int) {
	b.items = b.items[n:]
	s.waiting -= n
}

// release ends a lease: what is left of the session queues up behind the others.
func (s *schedule) release(b *backlog) {
	b.leased = false
	s.trim(b)
	if len(b.items) == 0 {
		delete(s.sessions, b.session)
		return
	}
	s.turns = append(s.turns, b)
	s.ready += len(b.items)
}

// dropFrom drops what waits at a sequence and behind it; of a session that is leased, when it is released.
func (s *schedule) dropFrom(at uint64) {
	s.hasCut, s.cutAt = true, at
	turns := slices.Clone(s.turns[s.head:])
	s.turns, s.head, s.ready = nil, 0, 0
	for _, b := range turns {
		s.release(b)
	}
}

// trim drops what a session has at the cut and behind it.
func (s *schedule) trim(b *backlog) {
	if !s.hasCut {
		return
	}
	n, _ := slices.BinarySearchFunc(b.items, s.cutAt, func(i *item, at uint64) int { return cmp.Compare(i.sequence, at) })
	s.waiting -= len(b.items) - n
	b.items = b.items[:n]
}

// returnLease undoes a lease of which nothing was taken: the session has its turn back.
func (s *schedule) returnLease(b *backlog) {
	if s.hasCut {
		s.release(b) // the order between sessions means nothing any more
		return
	}
	b.leased = false
	s.turns = slices.Insert(s.turns, s.head, b)
	s.ready += len(b.items)
}
