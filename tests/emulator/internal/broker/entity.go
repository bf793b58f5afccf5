package broker

import (
	"container/list"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus/entity"
)

// Entity is something messages are received from: a queue, a subscription or a dead-letter
// queue. Lock order: Inbox, Entity, its dead-letter Entity.
type Entity struct {
	path      string
	broker    *Broker
	cfg       Outbound // RequiresSession never changes; the rest is guarded by mu
	ttl       time.Duration
	deadQueue *Entity // nil for a dead-letter queue
	// transferDead takes what could not be forwarded; nil for a dead-letter queue.
	transferDead *Entity
	inbox        *Inbox // of a queue; nil for others
	transfers    transfers

	idleAfter atomic.Int64 // of a subscription, in nanoseconds; 0: it is not deleted when idle

	mu         sync.Mutex
	used       time.Time // last use by a receiver or the administration
	rules      []Rule    // of a subscription; nil takes everything
	ruleErrors bool      // dead-letter what a rule fails on
	deleted    bool
	receivers  map[*Receiver]struct{} // open ones
	after      []func()               // to call once mu is released
	deadlines  deadlines
	expiries   deadlines // of messages
	lastSeq    int64
	partitions int64 // 0: it has none; set before first use
	stats      counters
	takeOuts   []*takeOut
	deferred   map[int64]*message

	// Without sessions.
	ready  fifo
	locked map[Token]*message
	hungry list.List // *Receiver waiting for messages, longest first

	// With sessions.
	sessions      map[string]*session
	readySessions list.List // *session with messages and no holder, longest first
	waiters       list.List // *Receiver waiting for any session, longest first
}

type counters struct {
	active, locked, completed, expired, maxDelivered, redelivered int
	mostInHand                                                    int64 // bytes
}

// partitions is how many a partitioned entity has, as in Standard.
const partitions = 16

func newEntity(path string, cfg Outbound, ttl time.Duration, partitioned bool) *Entity {
	if cfg.LockDuration == 0 {
		cfg.LockDuration = entity.DefaultLockDuration
	}
	if cfg.MaxDeliveryCount == 0 {
		cfg.MaxDeliveryCount = DefaultMaxDeliveryCount
	}
	e := newStore(path, cfg)
	e.ttl = ttl
	e.deadQueue = newStore(path+deadLetterPart, Outbound{LockDuration: cfg.LockDuration})
	if partitioned {
		e.partitions, e.deadQueue.partitions = partitions, partitions
	}
	e.transferDead = newStore(path+transferPart, Outbound{LockDuration: cfg.LockDuration})
	return e
}

func newStore(path string, cfg Outbound) *Entity {
	return &Entity{
		path: path, cfg: cfg, locked: make(map[Token]*message),
		deferred: make(map[int64]*message), sessions: make(map[string]*session),
		receivers: make(map[*Receiver]struct{}), used: time.Now(),
	}
}

// Path returns the entity's address.
func (e *Entity) Path() string { return e.path }

// RequiresSession reports whether receivers must accept sessions.
func (e *Entity) RequiresSession() bool { return e.cfg.RequiresSession }

// lock takes the mutex and lets everything that is due happen first, so that no caller sees a
// lock that has already run out.
func (e *Entity) lock() time.Time {
	e.mu.Lock()
	now := time.Now()
	e.advance(now)
	return now
}

// unlock releases the mutex and makes the calls that became due under it.
func (e *Entity) unlock() { run(e.release()) }

func (e *Entity) release() []func() {
	after := e.after
	e.after = nil
	e.mu.Unlock()
	return after
}

func run(after []func()) {
	for _, f := range after {
		f()
	}
}

func (e *Entity) advance(now time.Time) {
	e.advanceExpiries(now)
	for {
		d, ok := e.deadlines.due(now)
		if !ok {
			return
		}
		switch {
		case d.msg != nil:
			if d.msg.token == d.token && !d.msg.lockedUntil.After(now) {
				e.stats.redelivered++
				e.unlockMessage(d.msg)
				e.failDelivery(d.msg, now)
				e.wakeHungry()
			}
		case d.sess != nil:
			if d.sess.holder == d.holder && !d.sess.lockedUntil.After(now) {
				e.expireSession(d.sess, now)
			}
		case d.freed != nil:
			if e.sessions[d.freed.id] == d.freed {
				e.offer(d.freed)
				e.forget(d.freed)
			}
		case d.waiter != nil:
			e.timeOutWaiter(d.waiter)
		}
	}
}

// enqueue stores a copy of a payload. A message without a session id cannot be in an entity that
// requires one: a topic takes it, and the subscription dead-letters it. enqueuedSeq is its number
// where it was sent first; 0: that is here.
func (e *Entity) enqueue(p *Payload, enqueuedSeq int64, modified map[string]any, now time.Time) {
	e.lastSeq++
	m := &message{Payload: p, seq: e.lastSeq, enqueuedSeq: enqueuedSeq, enqueuedAt: now}
	if e.partitions > 0 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(partitionKey(p)))
		m.partition = int64(h.Sum32()) % e.partitions
	}
	m.ttl = p.TimeToLive
	if e.ttl > 0 && (m.ttl == 0 || m.ttl > e.ttl) {
		m.ttl = e.ttl
	}
	if m.ttl > 0 {
		m.expiresAt = now.Add(m.ttl)
	}
	if c := p.carried; c != nil {
		m.dead, m.modified = c.dead, c.modified
	}
	m.modify(modified)
	if e.cfg.ForwardTo != "" {
		e.transfer(m, e.cfg.ForwardTo)
		return
	}
	if e.cfg.RequiresSession && !p.HasSessionID {
		e.deadLetter(m, ReasonNullSession, "Session enabled entity doesn't allow a message whose session identifier is null.", now)
		return
	}
	if reason := e.takesOut(p); reason != "" {
		e.deadLetter(m, reason, "The broker took the message out, as the test wants.", now)
		return
	}
	e.stats.active++
	if m.ttl > 0 {
		e.willExpire(m)
	}
	if !e.cfg.RequiresSession {
		e.ready.push(m)
		e.wakeHungry()
		return
	}
	s := e.session(p.SessionID)
	m.sess = s
	s.ready.push(m)
	e.offer(s)
}

// deadLetter moves a message that is in no queue to the dead-letter queue.
func (e *Entity) deadLetter(m *message, reason, description string, now time.Time) {
	m.dead = &DeadLetter{Reason: reason, Description: description, Source: e.path}
	m.sess, m.state, m.token, m.lockedUntil = nil, Active, Token{}, time.Time{}
	m.expiresAt = time.Time{} // nothing expires in a dead-letter queue
	if to := e.cfg.ForwardDeadLetteredMessagesTo; to != "" {
		e.transfer(m, to)
		return
	}
	e.after = append(e.after, e.deadQueue.take(m, now)...)
}

// take stores a dead letter and returns what to call once no lock is held.
func (e *Entity) take(m *message, now time.Time) []func() {
	e.mu.Lock()
	e.advance(now)
	e.lastSeq++
	m.seq = e.lastSeq
	e.stats.active++
	e.ready.push(m)
	e.wakeHungry()
	return e.release()
}

// failDelivery puts a message back after a failed delivery or, once its deliveries are exhausted,
// dead-letters it. The message must be unlocked and in no queue. The caller removes an empty
// session afterwards: other messages of it may be about to come back.
func (e *Entity) failDelivery(m *message, now time.Time) {
	if e.deadQueue != nil {
		m.deliveries++ // a dead letter keeps the count it came with
	}
	if e.deadQueue != nil && int(m.deliveries) >= e.cfg.MaxDeliveryCount {
		e.stats.active--
		e.stats.maxDelivered++
		if m.state == Deferred && m.sess != nil {
			m.sess.deferred--
		}
		e.deadLetter(m, ReasonMaxDelivery, fmt.Sprintf("Message could not be consumed after %d delivery attempts.", e.cfg.MaxDeliveryCount), now)
		return
	}
	e.putBack(m, now)
}

func (e *Entity) putBack(m *message, now time.Time) {
	switch {
	case m.state == Deferred:
		e.deferred[m.seq] = m
	case e.expire(m, now):
	case m.sess != nil:
		m.sess.ready.putBack(m)
		e.offer(m.sess)
	default:
		e.ready.putBack(m)
		e.wakeHungry()
	}
}

func (e *Entity) lockMessage(m *message, until time.Time) {
	m.token, m.lockedUntil = newToken(), until
	e.stats.locked++
	if m.sess != nil {
		m.sess.locked[m.token] = m
		m.sess.inHand += int64(len(m.Body))
		e.stats.mostInHand = max(e.stats.mostInHand, m.sess.inHand)
		return
	}
	e.locked[m.token] = m
	e.deadlines.add(deadline{at: until, seq: m.seq, msg: m, token: m.token})
	e.deadlines.compact(len(e.locked), func(d *deadline) bool {
		return d.msg == nil || d.msg.token == d.token && d.msg.lockedUntil.Equal(d.at)
	})
}

func (e *Entity) unlockMessage(m *message) {
	e.stats.locked--
	if m.sess != nil {
		delete(m.sess.locked, m.token)
		m.sess.inHand -= int64(len(m.Body))
	} else {
		delete(e.locked, m.token)
	}
	m.token, m.lockedUntil = Token{}, time.Time{}
}

// wakeHungry wakes as many waiting receivers as there are messages.
func (e *Entity) wakeHungry() {
	for n := e.ready.len(); n > 0 && e.hungry.Len() > 0; n-- {
		r := e.hungry.Remove(e.hungry.Front()).(*Receiver)
		r.waiting = nil
		e.after = append(e.after, r.Wake)
	}
}
