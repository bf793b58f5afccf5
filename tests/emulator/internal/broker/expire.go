package broker

import "time"

// advanceExpiries disposes of expired messages that are not locked. A locked message lives until it
// comes back, a deferred one until it is requested, as on the service.
func (e *Entity) advanceExpiries(now time.Time) {
	for {
		d, ok := e.expiries.due(now)
		if !ok {
			return
		}
		m := d.msg
		if m.expiresAt.Equal(d.at) && m.token == (Token{}) && m.state != Deferred {
			e.expireWaiting(m, now)
		}
	}
}

// willExpire remembers when a message's time is over.
func (e *Entity) willExpire(m *message) {
	e.expiries.add(deadline{at: m.expiresAt, seq: m.seq, msg: m})
	e.expiries.compact(e.stats.active, func(d *deadline) bool { return d.msg.expiresAt.Equal(d.at) })
}

// expireWaiting takes a message out of its queue. The queue may keep the struct for a while, so a
// copy goes to the dead-letter queue.
func (e *Entity) expireWaiting(m *message, now time.Time) {
	s, moved := m.sess, *m
	if s == nil {
		e.ready.remove(m)
	} else {
		s.ready.remove(m)
	}
	m.release()
	e.expire(&moved, now)
	if s == nil {
		return
	}
	if s.queued != nil && s.ready.len() == 0 {
		e.readySessions.Remove(s.queued)
		s.queued = nil
	}
	e.forget(s)
}

// expire disposes of a message that is in no queue and outlived its time, and reports whether it
// did.
func (e *Entity) expire(m *message, now time.Time) bool {
	if m.expiresAt.IsZero() || now.Before(m.expiresAt) {
		return false
	}
	e.stats.active--
	e.stats.expired++
	if e.cfg.DeadLetteringOnMessageExpiration && e.deadQueue != nil {
		e.deadLetter(m, ReasonExpired, "The message expired and was dead lettered.", now)
	} else {
		m.release()
	}
	return true
}

// release drops what a removed message refers to: a deadline may still refer to the message.
func (m *message) release() { m.Payload, m.expiresAt = nil, time.Time{} }

// ExpireLocks expires every lock on messages and sessions now, with all consequences: failed
// deliveries, and holders that lose their sessions. It returns the number of locks.
func (e *Entity) ExpireLocks() int {
	now := e.lock()
	defer e.unlock()
	n := 0
	for _, m := range inSequence(e.locked) {
		n++
		e.stats.redelivered++
		e.unlockMessage(m)
		e.failDelivery(m, now)
	}
	for _, s := range e.sessions {
		if s.holder != nil {
			n++
			e.expireSession(s, now)
		}
	}
	e.wakeHungry()
	return n
}

// ExpireLock expires one lock now: that of the session that r holds, or else that of the message.
func (e *Entity) ExpireLock(r *Receiver, t Token) {
	now := e.lock()
	defer e.unlock()
	switch m := e.locked[t]; {
	case r.sess != nil:
		e.expireSession(r.sess, now)
	case m != nil:
		e.stats.redelivered++
		e.unlockMessage(m)
		e.failDelivery(m, now)
		e.wakeHungry()
	}
}
