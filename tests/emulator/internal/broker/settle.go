package broker

import "time"

// Outcome is a receiver's decision about a message.
type Outcome uint8

// The outcomes.
const (
	Complete Outcome = iota
	Abandon          // back in its place, counting a failed delivery
	Release          // back in its place, counting nothing
	Defer            // only to be received by sequence number
	DeadLetterIt
)

// Settlement is an outcome with its parameters.
type Settlement struct {
	Outcome     Outcome
	Reason      string         // DeadLetterIt
	Description string         // DeadLetterIt
	Modify      map[string]any // properties to set; may be nil
}

// Settle applies an outcome to a message r holds a lock on.
func (e *Entity) Settle(r *Receiver, t Token, s Settlement) error {
	now := e.lock()
	defer e.unlock()
	var m *message
	switch {
	case !e.cfg.RequiresSession:
		m = e.locked[t]
	case r.sess != nil:
		m = r.sess.locked[t]
	case r.lostLock:
		return refuse(SessionLockLost, descSessionLockLost)
	}
	if m == nil {
		return refuse(MessageLockLost, descMessageLockLost)
	}
	e.settle(m, s, now)
	return nil
}

// SettleByToken applies an outcome to every token or, when one of them is not a lock any more,
// to none.
func (e *Entity) SettleByToken(tokens []Token, s Settlement) error {
	now := e.lock()
	defer e.unlock()
	ms := make([]*message, len(tokens))
	for i, t := range tokens {
		if ms[i] = e.findLocked(t); ms[i] == nil {
			return refuse(MessageLockLost, descMessageLockLost)
		}
	}
	for _, m := range ms {
		e.settle(m, s, now)
	}
	return nil
}

func (e *Entity) findLocked(t Token) *message {
	if !e.cfg.RequiresSession {
		return e.locked[t]
	}
	for r := range e.receivers { // what is locked in a session is so for its holder
		if r.sess != nil && r.sess.locked[t] != nil {
			return r.sess.locked[t]
		}
	}
	return nil
}

func (e *Entity) settle(m *message, s Settlement, now time.Time) {
	e.unlockMessage(m)
	m.modify(s.Modify)
	sess := m.sess
	if s.Outcome == Complete || s.Outcome == DeadLetterIt {
		if m.state == Deferred && sess != nil {
			sess.deferred--
		}
	}
	switch s.Outcome {
	case Complete:
		e.stats.active--
		e.stats.completed++
		m.release()
	case Abandon:
		e.stats.redelivered++
		e.failDelivery(m, now)
	case Release:
		e.stats.redelivered++
		e.putBack(m, now)
	case Defer:
		if m.state != Deferred && sess != nil {
			sess.deferred++
		}
		m.state = Deferred
		e.deferred[m.seq] = m
	case DeadLetterIt:
		if e.deadQueue == nil {
			e.putBack(m, now) // a dead letter stays where it is
			return
		}
		e.stats.active--
		e.deadLetter(m, s.Reason, s.Description, now)
	}
	if sess != nil {
		e.forget(sess)
	}
}

// RenewMessages extends the locks of messages on an entity without sessions.
func (e *Entity) RenewMessages(tokens []Token) ([]time.Time, error) {
	now := e.lock()
	defer e.unlock()
	if e.cfg.RequiresSession {
		return nil, refuse(NotAllowed, "A message of a session is renewed with its session.")
	}
	until := now.Add(e.cfg.LockDuration)
	out := make([]time.Time, len(tokens))
	for i, t := range tokens {
		if e.locked[t] == nil {
			return nil, refuse(MessageLockLost, descMessageLockLost)
		}
		out[i] = until
	}
	for _, t := range tokens {
		m := e.locked[t]
		m.lockedUntil = until
		e.deadlines.add(deadline{at: until, seq: m.seq, msg: m, token: t})
	}
	return out, nil
}

// TakeDeferred locks deferred messages by sequence number. With remove they are completed at
// once. All must be there.
func (e *Entity) TakeDeferred(seqs []int64, receiver string, remove bool) ([]Delivery, error) {
	now := e.lock()
	defer e.unlock()
	ms := make([]*message, len(seqs))
	for i, n := range seqs {
		m := e.deferred[n&(1<<partitionShift-1)]
		if m == nil || m.number() != n {
			return nil, refuse(MessageNotFound, "No deferred message with that sequence number.")
		}
		if m.sess != nil && (m.sess.holder == nil || m.sess.holder.Name != receiver) {
			return nil, refuse(SessionLockLost, descSessionLockLost)
		}
		ms[i] = m
	}
	out := make([]Delivery, 0, len(ms))
	for _, m := range ms {
		delete(e.deferred, m.seq)
		until := now.Add(e.cfg.LockDuration)
		if m.sess != nil {
			until = m.sess.lockedUntil
		}
		e.lockMessage(m, until)
		out = append(out, m.snapshot())
		if remove {
			e.settle(m, Settlement{Outcome: Complete}, now)
		}
	}
	return out, nil
}
