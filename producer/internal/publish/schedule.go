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
	size     int64  // counted against the limit on bytes
	session  string
	span     trace.Span            // nil if the event is not traced
	message  *azservicebus.Message // encoded at the first attempt to add it to a batch
}

// schedule holds the items that wait to be sent: a FIFO for each session, and the queue of sessions
// whose turn comes next. A session that a lane has leased is not in the queue until the lane
// releases it. That keeps its order: two batches of one session are never outstanding at once.
//
// It is pure state, not safe for concurrent use.
type schedule struct {
	sessions map[string]*backlog
	queue    []*backlog // the sessions, in order, that are not leased
	ready    int        // items of the sessions in the queue
	waiting  int        // items of all sessions
	hasCut   bool       // items at cutAt and behind it are dropped
	cutAt    uint64
}

// backlog holds the waiting items of one session. It is never empty while the session is in the
// queue.
type backlog struct {
	session string
	items   []*item
	leased  bool
}

func newSchedule() *schedule { return &schedule{sessions: map[string]*backlog{}} }

// push appends an item to its session, whether it is leased or not.
func (s *schedule) push(i *item) {
	b := s.sessions[i.session]
	if b == nil {
		b = &backlog{session: i.session}
		s.sessions[i.session] = b
		s.queue = append(s.queue, b)
	}
	b.items = append(b.items, i)
	s.waiting++
	if !b.leased {
		s.ready++
	}
}

// lease leases the next session of the queue. It returns nil if the queue is empty.
func (s *schedule) lease() *backlog {
	if len(s.queue) == 0 {
		return nil
	}
	b := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	b.leased = true
	s.ready -= len(b.items)
	return b
}

// leaseEmpty leases a session without items, so that new items of it wait. It returns nil if the
// session has any.
func (s *schedule) leaseEmpty(session string) *backlog {
	if s.sessions[session] != nil {
		return nil
	}
	b := &backlog{session: session, leased: true}
	s.sessions[session] = b
	return b
}

// take removes the first n items of a leased session, which are in a batch.
func (s *schedule) take(b *backlog, n int) {
	b.items = b.items[n:]
	s.waiting -= n
}

// release ends leases. A session with further items joins the end of the queue.
func (s *schedule) release(leases ...*backlog) {
	for _, b := range leases {
		b.leased = false
		s.trim(b)
		if len(b.items) == 0 {
			delete(s.sessions, b.session)
			continue
		}
		s.queue = append(s.queue, b)
		s.ready += len(b.items)
	}
}

// dropFrom drops the waiting items at a sequence number and behind it. Those of a leased session
// are dropped when it is released.
func (s *schedule) dropFrom(at uint64) {
	s.hasCut, s.cutAt = true, at
	queue := s.queue
	s.queue, s.ready = nil, 0
	s.release(queue...)
}

// trim drops the items of a session at the cut and behind it.
func (s *schedule) trim(b *backlog) {
	if !s.hasCut {
		return
	}
	n, _ := slices.BinarySearchFunc(b.items, s.cutAt, func(i *item, at uint64) int { return cmp.Compare(i.sequence, at) })
	s.waiting -= len(b.items) - n
	b.items = b.items[:n]
}

// returnLease undoes a lease of which nothing was taken: the session returns to the front of the
// queue.
func (s *schedule) returnLease(b *backlog) {
	if s.hasCut {
		s.release(b) // after a cut the order between sessions does not matter
		return
	}
	b.leased = false
	s.queue = slices.Insert(s.queue, 0, b)
	s.ready += len(b.items)
}
