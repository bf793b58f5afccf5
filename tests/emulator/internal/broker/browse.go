package broker

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Peek returns up to n messages from a sequence number on, in order, without locking them.
// only limits it to one session.
// A queue shows its scheduled messages too.
func (e *Entity) Peek(from int64, n int, only *string) []Delivery {
	e.mu.Lock()
	e.used = time.Now()
	e.mu.Unlock()
	return e.look(from, n, only)
}

func (e *Entity) look(from int64, n int, only *string) []Delivery {
	var found []*message
	if e.inbox != nil {
		found = e.inbox.scheduledFrom(from, only)
	}
	e.lock()
	defer e.unlock()
	note := func(m *message) {
		// A peek of the entity does not leave the partition that it begins in; one of a session
		// begins wherever that is.
		if m.number() >= from && (e.partitions == 0 || only != nil || from < 0 || m.partition == from>>partitionShift) {
			found = append(found, m)
		}
	}
	low, most := from, n // in the queues, which know no partitions
	if e.partitions > 0 {
		low, most = 0, math.MaxInt
	}
	e.ready.from(low, most, note)
	for _, m := range e.locked {
		note(m)
	}
	for _, m := range e.deferred {
		if only == nil || m.SessionID == *only {
			note(m)
		}
	}
	look := func(s *session) {
		s.ready.from(low, most, note)
		for _, m := range s.locked {
			note(m)
		}
	}
	switch {
	case only == nil:
		for _, s := range e.sessions {
			look(s)
		}
	case e.sessions[*only] != nil:
		look(e.sessions[*only])
	}
	slices.SortFunc(found, func(a, b *message) int { return cmp.Compare(a.number(), b.number()) })
	out := make([]Delivery, 0, min(n, len(found)))
	for _, m := range found[:min(n, len(found))] {
		d := m.snapshot()
		d.Token, d.LockedUntil = Token{}, time.Time{}
		out = append(out, d)
	}
	return out
}

// Sessions lists, by name, sessions with messages or state; with since, those whose state
// changed after it.
func (e *Entity) Sessions(since *time.Time, skip, top int) []string {
	e.lock()
	defer e.unlock()
	var ids []string
	for id, s := range e.sessions {
		if since == nil && (s.ready.len() > 0 || len(s.locked) > 0 || s.deferred > 0 || s.state != nil) ||
			since != nil && s.updatedAt.After(*since) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, strings.Compare)
	ids = ids[min(max(skip, 0), len(ids)):]
	return ids[:min(max(top, 0), len(ids))]
}

// HeldSession returns the session the named receiver holds, or nil.
func (e *Entity) HeldSession(receiver string) *string {
	e.lock()
	defer e.unlock()
	for r := range e.receivers {
		if r.sess != nil && r.Name == receiver {
			return &r.sess.id
		}
	}
	return nil
}

// Stats are counts of one entity. Which are filled depends on its kind: Accepted and
// Duplicates on a queue or topic, the others on a queue, subscription or dead-letter queue.
type Stats struct {
	Accepted   int       // messages taken from senders, duplicates not counted
	Duplicates int       // dropped by duplicate detection
	Scheduled  int       // waiting for their time
	AccessedAt time.Time // of the last send; zero when there was none

	Active               int // not completed, dead-lettered or expired; includes Locked and Deferred
	Locked               int
	Deferred             int
	DeadLettered         int // now in the dead-letter queue
	Completed            int
	Expired              int
	Transferring         int // to be forwarded
	TransferDeadLettered int // now in the transfer dead-letter queue
	Redelivered          int // times a message went back: abandoned, released or lock lost
	Sessions             int // with messages, state or a holder
	HeldSessions         int
	ReadySessions        int // with messages and no holder
	Waiters              int // receivers waiting for any session

	// MostInHand is how many bytes of messages one session's holder has had locked at once, at
	// most.
	MostInHand int64
}

// Stats returns the counts of the entity with the address; zero if it does not exist.
func (b *Broker) Stats(address string) Stats {
	var s Stats
	key := strings.ToLower(address)
	if in := b.paths.Load().inboxes[key]; in != nil {
		in.lock()
		s.Accepted, s.Duplicates, s.Scheduled = in.accepted, in.dropped, len(in.schedule)
		s.AccessedAt = in.accessed
		in.unlock()
	}
	if e := b.paths.Load().entities[key]; e != nil {
		e.fillStats(&s)
	}
	return s
}

func (e *Entity) fillStats(s *Stats) {
	e.lock()
	s.Active, s.Locked, s.Completed = e.stats.active, e.stats.locked, e.stats.completed
	s.Expired, s.Redelivered, s.Deferred = e.stats.expired, e.stats.redelivered, len(e.deferred)
	s.MostInHand = e.stats.mostInHand
	s.Sessions, s.ReadySessions, s.Waiters = len(e.sessions), e.readySessions.Len(), e.waiters.Len()
	for r := range e.receivers {
		if r.sess != nil {
			s.HeldSessions++
		}
	}
	e.unlock()
	if q := e.deadQueue; q != nil {
		q.lock()
		s.DeadLettered = q.stats.active
		q.unlock()
	}
	if q := e.transferDead; q != nil {
		q.lock()
		s.TransferDeadLettered = q.stats.active
		q.unlock()
	}
	s.Transferring = e.transfers.pending()
}

// Bytes returns the size of the immutable parts of an entity's messages, including scheduled and
// dead-lettered ones. It reads every message.
func (b *Broker) Bytes(address string) int64 {
	var n int64
	p := b.paths.Load()
	for _, a := range []string{address, address + deadLetterPart, address + transferPart} {
		if e := p.entities[strings.ToLower(a)]; e != nil {
			for _, d := range e.look(-1, math.MaxInt, nil) {
				n += int64(len(d.Body))
			}
		}
	}
	if in := p.inboxes[strings.ToLower(address)]; in != nil && in.isTopic {
		for _, m := range in.scheduledFrom(0, nil) {
			n += int64(len(m.Body))
		}
		in.lock()
		outs := in.outs
		in.unlock()
		for _, e := range outs {
			n += b.Bytes(e.path)
		}
	}
	return n
}
