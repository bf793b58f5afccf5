package broker

import "time"

// advanceExpiries disposes of messages whose time is over and that nobody holds. A locked message
// lives until it comes back, a deferred one until it is asked for: as on the service.
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

// expireWaiting takes a message out of its queue. The queue may keep the struct for a while, so
// what goes on to the dead-letter queue is a copy.
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

// release forgets what a message that is gone holds on to: a deadline may still know it.
func (m *message) release() { m.Payload, m.expiresAt = nil, time.Time{} }

// ExpireLocks lets every lock on messages and sessions run out now, with all that follows:
// failed deliveries, and holders that hear of it. It returns how many locks there were.
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

// ExpireLock lets one lock run out now: that of the session r holds, else that of the message.
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
