package broker

import (
	"fmt"
	"sync"
	"time"
)

// maxHops is how often a message may be forwarded.
const maxHops = 4

// transfers holds what an entity has yet to forward. Forwarding takes the target's locks, so it
// happens after the entity's own are released; order keeps the messages in sequence in the
// meantime.
type transfers struct {
	order sync.Mutex // held while forwarding
	mu    sync.Mutex // guards queue
	queue []transfer
}

type transfer struct {
	m  *message
	to string
}

func (t *transfers) pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// transfer hands a message that is in no queue to another entity once e is unlocked.
func (e *Entity) transfer(m *message, to string) {
	e.transfers.mu.Lock()
	e.transfers.queue = append(e.transfers.queue, transfer{m, to})
	e.transfers.mu.Unlock()
	e.after = append(e.after, e.drainTransfers)
}

// drainTransfers forwards what is waiting. A message that cannot be forwarded goes to the transfer
// dead-letter queue. Holding order over the sends is safe because hops are limited; a cycle would
// re-enter the same lock, so its messages are left to the goroutine that holds it.
func (e *Entity) drainTransfers() {
	for e.transfers.pending() > 0 && e.transfers.order.TryLock() {
		for {
			e.transfers.mu.Lock()
			if len(e.transfers.queue) == 0 {
				e.transfers.mu.Unlock()
				break
			}
			next := e.transfers.queue[0]
			e.transfers.queue = e.transfers.queue[1:]
			e.transfers.mu.Unlock()
			e.forward(next)
		}
		e.transfers.order.Unlock()
	}
}

func (e *Entity) forward(t transfer) {
	p := *t.m.Payload
	c := carried{seq: t.m.first(), dead: t.m.dead, modified: t.m.modified}
	if p.carried != nil {
		c.hops = p.carried.hops
	}
	c.hops++
	p.carried = &c
	p.ScheduledAt = time.Time{}
	if c.hops > maxHops {
		e.failTransfer(t.m, ReasonHops, fmt.Sprintf("The message was forwarded more than %d times.", maxHops))
		return
	}
	in, err := e.broker.Inbox(t.to)
	if err == nil {
		err = in.Send([]*Payload{&p})
	}
	if err != nil {
		e.failTransfer(t.m, ReasonTransfer, fmt.Sprintf("Forwarding to '%s': %s", t.to, err))
	}
}

func (e *Entity) failTransfer(m *message, reason, description string) {
	m.dead = &DeadLetter{Reason: reason, Description: description, Source: e.path}
	m.sess, m.state, m.token, m.lockedUntil = nil, Active, Token{}, time.Time{}
	m.expiresAt = time.Time{}
	run(e.transferDead.take(m, time.Now()))
}
