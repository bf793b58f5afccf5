package publish

import (
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// item is one event on its way through a lane.
type item struct {
	change   envelope.Change
	sequence uint64 // in the watermark
	size     int64  // counted against the bound on bytes
	session  string
	message  *azservicebus.Message // encoded at the first attempt to put it into a batch
}

// queue is what waits in a lane: a FIFO for each session, and the sessions in the order in which their turn comes.
// Order holds within a session, which is all that is promised, so that a batch of one session can be as large as its
// backlog allows.
//
// It is not safe for concurrent use.
type queue struct {
	sessions map[string]*backlog
	turns    []*backlog // those with something waiting; turns[head:] in order
	head     int
	length   int
}

type backlog struct {
	session string
	items   []item
}

func newQueue() *queue { return &queue{sessions: map[string]*backlog{}} }

func (q *queue) push(i item) {
	b := q.sessions[i.session]
	if b == nil {
		b = &backlog{session: i.session}
		q.sessions[i.session] = b
		q.turns = append(q.turns, b)
	}
	b.items = append(b.items, i)
	q.length++
}

// front is the session whose turn it is, nil when nothing waits. Its items may be inspected, not changed.
func (q *queue) front() *backlog {
	if q.head == len(q.turns) {
		return nil
	}
	return q.turns[q.head]
}

// take removes the first n items of the front session and ends its turn: what is left of it queues up again behind the
// other sessions.
func (q *queue) take(n int) []item {
	b := q.turns[q.head]
	q.turns[q.head] = nil
	q.head++
	if q.head == len(q.turns) {
		q.turns, q.head = q.turns[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.turns) {
		q.turns = append(q.turns[:0], q.turns[q.head:]...)
		q.head = 0
	}
	taken := b.items[:n:n]
	q.length -= n
	if n == len(b.items) {
		delete(q.sessions, b.session)
	} else {
		b.items = b.items[n:]
		q.turns = append(q.turns, b)
	}
	return taken
}
