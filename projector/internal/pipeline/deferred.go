package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// deferred holds the messages of a session that wait: their aggregates fail for reasons of their own, miss a version, or cannot get a
// body. They stay in hand, in their order, neither applied nor settled, so that the messages of other aggregates behind them are
// received and handled: otherwise RECEIVE_BATCH of them would hold up every aggregate of the session. One goroutine uses it.
type deferred struct {
	p        *Pipeline
	session  *sessions.Session
	b        *batch
	bodies   map[string]*fetching // by message id
	versions time.Time            // when to try again what misses a version
}

// fetching is a body that could not be fetched.
type fetching struct {
	due     time.Time
	backoff retry.Backoff
}

// maxDeferred bounds the messages that are kept in hand; the memory of a worker bounds them as well.
const maxDeferred = 1000

// minWait bounds from below the pause between two attempts at what is deferred.
const minWait = 100 * time.Millisecond

func (p *Pipeline) newDeferred(session *sessions.Session) *deferred {
	return &deferred{p: p, session: session, b: &batch{}, bodies: make(map[string]*fetching)}
}

// next returns the session's next messages. While some are deferred, it returns those behind them, or none as soon as an aggregate is to
// be tried again; the session occupies no worker until then. Errors: [sessions.ErrRelease].
func (d *deferred) next(ctx context.Context, completing *completion) ([]*azservicebus.ReceivedMessage, error) {
	if d.b.len() == 0 {
		return d.session.Receive(ctx)
	}
	if err := completing.wait(); err != nil { // messages that are being completed need the memory
		return nil, err
	}
	if d.session.Age() >= maxStuck {
		return nil, sessions.ErrRelease
	}
	room := d.b.len() < d.session.Room(maxDeferred)
	if room {
		if messages, err := d.session.Arrived(ctx); len(messages) > 0 || err != nil {
			return messages, err
		}
	}
	return d.session.Wait(ctx, max(d.due(), minWait), d.b.bytes(), room)
}

// join returns the deferred messages and, behind them, the received ones. What misses a version is tried again if that is due.
func (d *deferred) join(received *batch) *batch {
	if d.b.len() == 0 {
		return received
	}
	b := &batch{spans: received.spans, pace: received.pace}
	retry := !time.Now().Before(d.versions)
	for _, part := range []*batch{d.b, received} {
		for i, r := range part.results {
			if r.Kind == apply.Gap {
				if retry {
					r = apply.Result{}
				} else {
					b.gaps++
				}
			}
			b.addMessage(part.messages[i], part.changes[i], r)
		}
	}
	d.b = &batch{}
	return b
}

// due returns how long it is until an aggregate is to be tried again; 0 or less if one is.
func (d *deferred) due() time.Duration {
	first := maxStuck
	for i := range d.b.first() {
		c := &d.b.changes[i]
		due := d.p.failing.Due(c.Aggregate)
		switch f := d.bodies[c.MessageID]; {
		case due > 0:
		case d.b.results[i].Kind == apply.Gap:
			due = time.Until(d.versions)
		case c.Claim != nil && f != nil:
			due = time.Until(f.due)
		}
		first = min(first, due)
	}
	return first
}

// fetchable returns the first change of b whose body can be fetched now and is all that keeps the change from being applied.
func (d *deferred) fetchable(b *batch, leave map[string]bool) (i int, ok bool) {
	for i := range b.first() {
		c := &b.changes[i]
		if c.Claim == nil || b.results[i].Kind != apply.Pending || leave[c.Aggregate] {
			continue
		}
		if f := d.bodies[c.MessageID]; f == nil || !time.Now().Before(f.due) {
			return i, true
		}
	}
	return 0, false
}

// fetch gets the body of a change, while other sessions are handled. A body that is gone or corrupt makes its event poison; one that
// cannot be had now is fetched again later, while what lies behind it in the session is handled.
func (d *deferred) fetch(ctx context.Context, b *batch, i int) error {
	var done func()
	var err error
	c, claim := &b.changes[i], b.changes[i].Claim
	stop := d.session.Aside(ctx, b.bytes(), func(bool) { done, err = d.p.claims.fetch(ctx, c) })
	switch refusal, final := errors.AsType[*envelope.Error](err); {
	case stop != nil:
		if err == nil {
			done()
		}
		return stop
	case final:
		b.results[i] = apply.Undecodable(refusal)
	case err != nil:
		f := d.bodies[c.MessageID]
		if f == nil {
			f = &fetching{backoff: retry.Backoff{Initial: 200 * time.Millisecond, Max: 30 * time.Second}}
			d.bodies[c.MessageID] = f
		}
		f.due = time.Now().Add(f.backoff.Next())
	default:
		delete(d.bodies, c.MessageID)
		b.fetched = &fetchedBody{message: b.messages[i], claim: claim, done: done}
		one := &batch{messages: b.messages[i : i+1], changes: b.changes[i : i+1], results: b.results[i : i+1]}
		return d.p.refuse(ctx, one)
	}
	return nil
}
