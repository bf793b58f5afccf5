package broker

import (
	"container/list"
	"time"
)

// session is one session of an entity; it exists while it has messages, state or a holder.
type session struct {
	id          string
	ready       fifo
	locked      map[Token]*message
	inHand      int64 // bytes of the locked
	deferred    int
	state       []byte
	updatedAt   time.Time // of the state
	holder      *Receiver
	hungry      bool // the holder waits for messages
	lockedUntil time.Time
	freeFrom    time.Time     // it cannot be accepted before
	queued      *list.Element // in readySessions
}

func (e *Entity) session(id string) *session {
	s := e.sessions[id]
	if s == nil {
		s = &session{id: id, locked: make(map[Token]*message)}
		e.sessions[id] = s
	}
	return s
}

// forget removes a session without messages, state and holder.
func (e *Entity) forget(s *session) {
	if s.holder != nil || time.Now().Before(s.freeFrom) || s.ready.len() > 0 || len(s.locked) > 0 || s.deferred > 0 || s.state != nil {
		return
	}
	if s.queued != nil {
		e.readySessions.Remove(s.queued)
		s.queued = nil
	}
	if e.sessions[s.id] == s {
		delete(e.sessions, s.id)
	}
}

// offer announces a session's messages: to its holder, or else to the receiver that has waited
// longest for any session; otherwise the session queues up behind the other ready sessions.
func (e *Entity) offer(s *session) {
	switch {
	case s.ready.len() == 0:
	case s.holder != nil:
		if s.hungry {
			s.hungry = false
			e.after = append(e.after, s.holder.Wake)
		}
	case time.Now().Before(s.freeFrom): // offered again then
	case e.waiters.Len() > 0:
		r := e.waiters.Remove(e.waiters.Front()).(*Receiver)
		r.waiting = nil
		e.grant(s, r, time.Now())
	case s.queued == nil:
		s.queued = e.readySessions.PushBack(s)
	}
}

func (e *Entity) grant(s *session, r *Receiver, now time.Time) {
	if s.queued != nil {
		e.readySessions.Remove(s.queued)
		s.queued = nil
	}
	s.holder, r.sess, s.hungry = r, s, false
	e.extend(s, now)
	g := SessionGrant{SessionID: s.id, LockedUntil: s.lockedUntil}
	e.after = append(e.after, func() { r.Accepted(g, nil) })
}

func (e *Entity) extend(s *session, now time.Time) {
	s.lockedUntil = now.Add(e.cfg.LockDuration)
	for _, m := range s.locked { // the messages live under the session's lock
		m.lockedUntil = s.lockedUntil
	}
	e.deadlines.add(deadline{at: s.lockedUntil, sess: s, holder: s.holder})
	e.deadlines.compact(len(e.sessions)+e.waiters.Len(), func(d *deadline) bool {
		return d.sess == nil || d.sess.holder == d.holder && d.sess.lockedUntil.Equal(d.at)
	})
}

// AcceptSession gives r the session with the id or, when id is nil, the one that has been
// ready longest; without any it waits up to timeout. The outcome goes to r.Accepted.
func (e *Entity) AcceptSession(r *Receiver, id *string, timeout time.Duration) error {
	if !e.cfg.RequiresSession {
		if e.deadQueue == nil {
			return refuse(NotAllowed, descSubQueueSession)
		}
		return refuse(NotAllowed, descSessionNotRequired)
	}
	now := e.lock()
	defer e.unlock()
	e.used = now
	if err := e.refusal(); err != nil {
		return err
	}
	if id != nil {
		s := e.session(*id)
		if s.holder != nil || now.Before(s.freeFrom) {
			return refuse(SessionCannotBeLocked, "The requested session '"+*id+"' cannot be accepted. It may be locked by another receiver.")
		}
		e.receivers[r] = struct{}{}
		e.grant(s, r, now)
		return nil
	}
	e.receivers[r] = struct{}{}
	if front := e.readySessions.Front(); front != nil {
		e.grant(front.Value.(*session), r, now)
		return nil
	}
	r.waiting = e.waiters.PushBack(r)
	e.deadlines.add(deadline{at: now.Add(timeout), waiter: r})
	return nil
}

func (e *Entity) timeOutWaiter(r *Receiver) {
	if r.waiting == nil || r.sess != nil {
		return
	}
	e.waiters.Remove(r.waiting)
	r.waiting = nil
	delete(e.receivers, r)
	e.after = append(e.after, func() { r.Accepted(SessionGrant{}, refuse(Timeout, descAcceptTimeout)) })
}

// releaseSession takes a session from its holder. Its unsettled messages go back in order; failed
// reports whether that counts as a failed delivery.
func (e *Entity) releaseSession(s *session, now time.Time, failed bool) {
	s.holder.sess = nil
	s.holder, s.hungry, s.lockedUntil = nil, false, time.Time{}
	if lag := time.Duration(e.broker.lag.Load()); lag > 0 {
		s.freeFrom = now.Add(lag)
		e.deadlines.add(deadline{at: s.freeFrom, freed: s})
	}
	back := inSequence(s.locked)
	for _, m := range back {
		e.unlockMessage(m)
	}
	for _, m := range back {
		if failed {
			e.stats.redelivered++
			e.failDelivery(m, now)
		} else {
			// Straight into the queue: offering now could hand out the session half refilled.
			e.returnQuietly(m, now)
		}
	}
	e.offer(s)
	e.forget(s)
}

func (e *Entity) returnQuietly(m *message, now time.Time) {
	if m.state == Deferred {
		e.deferred[m.seq] = m
		return
	}
	if !e.expire(m, now) {
		m.sess.ready.putBack(m)
	}
}

// expireSession handles the expiry of a session's lock: every message under it counts a failed
// delivery, and the holder is informed.
func (e *Entity) expireSession(s *session, now time.Time) {
	r := s.holder
	r.lostLock = true
	e.releaseSession(s, now, true)
	e.after = append(e.after, func() { r.Lost(refuse(SessionLockLost, descSessionLockLost)) })
}

// held finds a session by id if the named receiver, or with no name anyone, holds it.
func (e *Entity) held(id, receiver string) (*session, error) {
	s := e.sessions[id]
	if s == nil || s.holder == nil || receiver != "" && s.holder.Name != receiver {
		return nil, refuse(SessionLockLost, descSessionLockLost)
	}
	return s, nil
}

// RenewSession extends the lock that the receiver with the name has on the session.
func (e *Entity) RenewSession(id, receiver string) (time.Time, error) {
	now := e.lock()
	defer e.unlock()
	s, err := e.held(id, receiver)
	if err != nil {
		return time.Time{}, err
	}
	e.extend(s, now)
	return s.lockedUntil, nil
}

// SessionState returns the state of a session the receiver holds; nil without one.
func (e *Entity) SessionState(id, receiver string) ([]byte, error) {
	e.lock()
	defer e.unlock()
	s, err := e.held(id, receiver)
	if err != nil {
		return nil, err
	}
	return s.state, nil
}

// SetSessionState replaces the state of a session the receiver holds; nil clears it.
func (e *Entity) SetSessionState(id, receiver string, state []byte) error {
	now := e.lock()
	defer e.unlock()
	s, err := e.held(id, receiver)
	if err != nil {
		return err
	}
	s.state, s.updatedAt = state, now
	return nil
}
