// Package sessions accepts and holds sessions: a fixed number of workers handle one session each,
// and further sessions only wait.
//
// Guaranteed:
//   - A session's messages reach the handler in order, also across redeliveries on the same link.
//   - While the handler runs, the session's lock is renewed; if a renewal fails, the handler's
//     context is cancelled with ErrLockLost as its cause.
//   - A session is released by closing its link, which unlocks its messages without raising any
//     delivery count. If only its last messages remain to be settled ([Session.ReleaseAfter]), the
//     worker accepts the next session meanwhile: so there are at most twice as many sessions as
//     workers, of which half are only being released.
//   - A session that only waits ([Session.Yield]) occupies no worker, as long as no more than
//     maxAside wait: it is held, with its lock renewed, while the worker accepts the next one. At
//     most Workers sessions are handled at any moment: accepted sessions, and those that have
//     waited long enough, share the slots.
//   - Unless a worker has sought a session for Idle and found none, other sessions may be waiting:
//     a session without messages is then released immediately, and none is held longer than
//     MaxHold. Otherwise a session is kept for Idle after its last message, because accepting it
//     again would cost round trips: two over AMQP, some fifteen through the SDK.
//
// Not guaranteed: that the lock is held. It may have expired, unnoticed, at any moment: correctness
// must not depend on it.
package sessions

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Transport is how the broker is reached.
type Transport struct {
	Receiver Receiver
	// Connections is how many connections the workers share.
	Connections int
	// Namespace is used by [Direct], Dial, which opens a client, by [SDK]; both by [Auto].
	Namespace *servicebus.Namespace
	Dial      func() (*azservicebus.Client, error)
}

// Options are a pool's settings.
type Options struct {
	Entity        azure.Entity  // must require sessions
	Workers       int           // sessions held at once
	Batch         int           // messages received at once
	Bytes         int           // of messages that all sessions hold, about; 0: any
	Idle          time.Duration // how long a session without messages is kept
	MaxHold       time.Duration // how long a session is kept while others may be waiting
	AcceptTimeout time.Duration // how long one accept waits for a session; long, because each costs round trips
	CloseTimeout  time.Duration // bounds the release of a session
	Logger        *slog.Logger
	// Held is called with +1 and -1 as sessions are accepted and released.
	Held func(delta int)
	// Accepted is called with the time that each accept took.
	Accepted func(took time.Duration)
}

// Pool accepts and holds sessions.
type Pool struct {
	opts      Options
	acceptors []acceptor // each shared by the workers of one connection
	outage    *outage.Outage
	throttle  *throttle
	failures  failures
	budget    *byteBudget
	held      sync.WaitGroup // sessions, with a worker or without
	releasing chan struct{}  // holds a value for each session that is released while its worker has gone on
	slots     chan struct{}  // holds a value for each session that is handled

	mu         sync.Mutex
	demand     demand     // guarded by mu
	waiting    *list.List // of context.CancelFunc: the holders without work, the longest idle first; guarded by mu
	queued     int        // sessions that wait for a slot; guarded by mu
	aside      int        // sessions that only wait; guarded by mu
	asideBytes int        // of messages that they hold; guarded by mu
}

// maxAside bounds the sessions that wait without a worker. Each has an AMQP session; a connection
// has 5,000 of them.
const maxAside = 2000

// New returns a pool that spreads its workers over connections. Nothing is connected before the
// first use.
func New(transport Transport, opts Options) *Pool {
	p := &Pool{
		opts:      opts,
		releasing: make(chan struct{}, opts.Workers),
		slots:     make(chan struct{}, max(opts.Workers, 1)),
		outage:    outage.New(opts.Logger, "accepting sessions"),
		throttle:  newThrottle(),
		waiting:   list.New(),
		demand:    demand{keep: opts.Idle},
	}
	seen, judged := &backlogEstimate{log: opts.Logger}, &compatibility{log: opts.Logger}
	// A session holds a batch while the one before is completed and the next one arrives, and the
	// session before it may still have its last one.
	p.budget = &byteBudget{bytes: opts.Bytes / (4 * max(opts.Workers, 1))}
	for range transport.Connections {
		over := newAMQP(opts.Entity.Path(), transport.Namespace, opts.CloseTimeout, seen, p.budget)
		through := newSDK(opts.Entity, transport.Dial, opts.CloseTimeout, seen, p.budget)
		switch transport.Receiver {
		case Direct:
			p.acceptors = append(p.acceptors, over)
		case SDK:
			p.acceptors = append(p.acceptors, through)
		default:
			p.acceptors = append(p.acceptors, &autoAcceptor{compatibility: judged, direct: over, sdk: through})
		}
	}
	return p
}

// Handler handles one session until [Session.Receive] returns [ErrRelease], or ctx ends. receiving
// ends when the pool is to stop; applying may outlive it, so that received messages can be
// finished. Both end when the session's lock is lost, with [ErrLockLost] as the cause. Errors other
// than ErrRelease are logged, and the session is released as well.
type Handler func(receiving, applying context.Context, s *Session) error

// Run works until ctx ends and every session has been released. The handlers' applying context
// derives from work, which may end later than ctx.
func (p *Pool) Run(ctx, work context.Context, handle Handler) {
	var workers sync.WaitGroup
	for i := range p.opts.Workers {
		workers.Go(func() { p.worker(ctx, work, p.acceptors[i%len(p.acceptors)], handle) })
	}
	workers.Wait()
	p.held.Wait()
}

// Close closes the connections. The pool must no longer be in use.
func (p *Pool) Close(ctx context.Context) {
	var all sync.WaitGroup
	for _, a := range p.acceptors {
		all.Go(func() { a.close(ctx) })
	}
	all.Wait()
}

// Err returns why sessions cannot be accepted at the moment, or nil.
func (p *Pool) Err() error { return p.outage.Err() }

func (p *Pool) worker(ctx, work context.Context, via acceptor, handle Handler) {
	var backoff retry.Backoff
	seeker := p.seek()
	for p.throttle.wait(ctx) == nil && ctx.Err() == nil {
		asked := time.Now()
		session, err := p.accept(ctx, via, seeker)
		busy := p.throttle.record(asked, err)
		switch {
		case err == nil:
			backoff.Reset()
			p.outage.Report(nil)
			p.held.Go(func() { p.handleSession(ctx, work, session, handle) })
			<-session.freed
			seeker = p.seek()
		case ctx.Err() != nil:
		case errors.Is(err, errNoSession):
			backoff.Reset()
			p.outage.Report(nil)
		default:
			p.outage.Report(err)
			if !busy {
				_ = backoff.Wait(ctx) // its end is seen above
			}
		}
	}
}

// seek records that a worker seeks a session, until accept gets one.
func (p *Pool) seek() *list.Element {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.demand.seek(time.Now())
}

func (p *Pool) accept(ctx context.Context, via acceptor, seeker *list.Element) (*Session, error) {
	accepting, cancel := context.WithTimeout(ctx, p.opts.AcceptTimeout)
	defer cancel()
	asked := time.Now()
	l, release, err := via.accept(accepting)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand.found(seeker)
	if !p.demand.met(now) {
		// Two for one: if many sessions wait, the number of workers that seek them doubles each
		// time.
		p.wakeOldest()
		p.wakeOldest()
	}
	p.opts.Accepted(now.Sub(asked))
	_, overlaps := l.(*amqpSession) // an accept through the SDK excludes the others on its connection
	return &Session{pool: p, link: l, end: release, accepted: now, overlaps: overlaps, freed: make(chan struct{})}, nil
}

// handleSession runs the handler while the lock is renewed, then releases the session. It closes
// the session's freed once the worker may accept another one.
func (p *Pool) handleSession(ctx, work context.Context, s *Session, handle Handler) {
	p.opts.Held(+1)
	every := renewal(time.Until(s.link.LockedUntil()))
	receiving, stopReceiving := context.WithCancelCause(ctx)
	applying, stopApplying := context.WithCancelCause(work)
	renewing, stopRenewing := context.WithCancel(applying)
	var renewer sync.WaitGroup
	renewer.Go(func() {
		if err := s.renew(renewing, every); err != nil {
			stopReceiving(err)
			stopApplying(err)
		}
	})
	err := s.acquireSlot(receiving)
	if pause := p.failures.pause(s.ID(), time.Now()); err == nil && pause > 0 {
		err = s.Yield(receiving, 0, func(bool) { _ = retry.Sleep(receiving, pause) })
		s.accepted = time.Now() // the pause is no part of how long it may be held
	}
	if err == nil {
		err = handle(receiving, applying, s)
	}
	if s.overlaps && errors.Is(err, ErrRelease) {
		select {
		case p.releasing <- struct{}{}:
			defer func() { <-p.releasing }()
			s.releaseSlot()
		default:
		}
	}
	if late := s.Settled(); late != nil && (err == nil || errors.Is(err, ErrRelease)) {
		err = late
	}
	stopRenewing()
	renewer.Wait()
	lost := context.Cause(applying)
	stopReceiving(nil)
	stopApplying(nil)
	p.release(ctx, s, err, lost)
	s.releaseSlot()
}

// release releases a session. err is how the handler ended; lost is why the lock was lost, or nil.
func (p *Pool) release(ctx context.Context, s *Session, err, lost error) {
	failed := err != nil && !errors.Is(err, ErrRelease) && ctx.Err() == nil
	p.failures.ended(s.ID(), failed || lost != nil || !s.received, time.Now())
	switch {
	case errors.Is(lost, ErrLockLost):
		p.opts.Logger.Warn("session lock lost; its messages will be delivered again", telemetry.KeySession, s.ID(), telemetry.KeyError, lost)
	case failed:
		p.opts.Logger.Warn("session released after an error; its messages will be delivered again", telemetry.KeySession, s.ID(), telemetry.KeyError, err)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.CloseTimeout)
	defer cancel()
	if err := s.link.Close(closing); err != nil {
		p.opts.Logger.Debug("session not released cleanly; its lock will expire", telemetry.KeySession, s.ID(), telemetry.KeyError, err)
	}
	s.end(ctx)
	p.opts.Held(-1)
}

// contended reports whether no worker is free, so that sessions with messages may be waiting for
// one, or whether an accepted session waits for a slot.
func (p *Pool) contended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy()
}

// busy is like contended, for a caller that holds mu.
func (p *Pool) busy() bool { return p.queued > 0 || !p.demand.met(time.Now()) }

// idle returns the context for waiting without work. It ends after Idle, or when the pool needs
// this worker for another session. ok is false if the pool needs one now.
func (p *Pool) idle(ctx context.Context) (idle context.Context, stop func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy() {
		return nil, nil, false
	}
	idle, cancel := context.WithTimeout(ctx, p.opts.Idle)
	entry := p.waiting.PushBack(cancel)
	return idle, func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting.Remove(entry)
	}, true
}

// wakeOldest releases the longest idle session. The caller holds mu.
func (p *Pool) wakeOldest() {
	if oldest := p.waiting.Front(); oldest != nil {
		p.waiting.Remove(oldest).(context.CancelFunc)()
	}
}
