package broker

import (
	"container/list"
	"fmt"
	"slices"
	"time"
)

// Receiver is one consumer of an entity. The exported fields must be set before it is opened
// and not change; the others are the entity's, guarded by its mutex.
type Receiver struct {
	// Name is the link's name; management requests refer to the receiver by it.
	Name string
	// DeleteOnReceive completes messages as they are taken.
	DeleteOnReceive bool
	// Wake is called when messages may be available after a Take that returned fewer than
	// asked for.
	Wake func()
	// Accepted is called once with the outcome of AcceptSession, unless the receiver is
	// closed first.
	Accepted func(SessionGrant, error)
	// Lost is called when the session's lock ran out.
	Lost func(*Error)

	waiting  *list.Element // in hungry or waiters
	sess     *session      // held
	lostLock bool
	closed   bool
}

// SessionGrant describes the accepted session.
type SessionGrant struct {
	SessionID   string
	LockedUntil time.Time
}

// Open registers a receiver on an entity without sessions.
func (e *Entity) Open(r *Receiver) error {
	e.used = e.lock()
	defer e.unlock()
	if e.cfg.RequiresSession {
		return refuse(NotAllowed, descSessionRequired)
	}
	if err := e.refusal(); err != nil {
		return err
	}
	e.receivers[r] = struct{}{}
	return nil
}

// refusal returns why the entity accepts no receivers, or nil.
func (e *Entity) refusal() error {
	switch {
	case e.deleted:
		return refuse(NotFound, fmt.Sprintf("The messaging entity '%s' could not be found.", e.path))
	case e.cfg.ReceiveDisabled:
		return refuse(EntityDisabled, descEntityDisabled)
	}
	return nil
}

// Close unregisters a receiver. A session it holds is free again at once, and its unsettled
// messages go back without counting as a failed delivery. Messages locked without a session
// stay locked until their locks run out.
func (e *Entity) Close(r *Receiver) {
	now := e.lock()
	defer e.unlock()
	if r.closed {
		return
	}
	r.closed = true
	e.used = now
	delete(e.receivers, r)
	if e.broker.idles.Load() {
		e.after = append(e.after, e.broker.notifyEarlier)
	}
	if r.waiting != nil {
		// The element is in one of the two lists; Remove ignores one that is not the list's.
		e.hungry.Remove(r.waiting)
		e.waiters.Remove(r.waiting)
		r.waiting = nil
	}
	if s := r.sess; s != nil {
		e.releaseSession(s, now, false)
	}
	e.wakeHungry()
}

// Take appends up to n messages to buf, locked for r or, with DeleteOnReceive, completed.
func (e *Entity) Take(r *Receiver, n int, buf []Delivery) []Delivery {
	now := e.lock()
	defer e.unlock()
	if r.closed {
		return buf
	}
	if n <= 0 {
		e.wakeHungry() // r may have been woken for a message it has no credit for any more
		return buf
	}
	q, until := &e.ready, now.Add(e.cfg.LockDuration)
	if e.cfg.RequiresSession {
		if r.sess == nil {
			return buf
		}
		q, until = &r.sess.ready, r.sess.lockedUntil
	}
	for n > 0 {
		m := q.pop()
		if m == nil {
			break
		}
		if e.expire(m, now) {
			continue
		}
		if r.DeleteOnReceive {
			e.stats.active--
			e.stats.completed++
			buf = append(buf, m.snapshot())
			m.release()
		} else {
			e.lockMessage(m, until)
			buf = append(buf, m.snapshot())
		}
		n--
	}
	switch {
	case n == 0 || r.waiting != nil:
	case e.cfg.RequiresSession:
		r.sess.hungry = true
	default:
		r.waiting = e.hungry.PushBack(r)
	}
	if !e.cfg.RequiresSession {
		e.wakeHungry()
	}
	return buf
}

// inSequence sorts messages for a bulk return, since maps have no order.
func inSequence(ms map[Token]*message) []*message {
	out := make([]*message, 0, len(ms))
	for _, m := range ms {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *message) int { return int(a.seq - b.seq) })
	return out
}
