// Package sessions accepts sessions and holds them: a fixed number of workers, each with one session at a time.
//
// Guaranteed:
//   - A session's messages reach the handler in order, also across redeliveries on the same link (see Session.Receive).
//   - While the handler runs, the session's lock is renewed; when a renewal fails, the handler's context is cancelled
//     with ErrLockLost as its cause.
//   - A session is given back by closing its link, which unlocks its messages without raising any delivery count.
//   - While every worker has a session, or has not looked for one in vain for Idle, others may be waiting: sessions without
//     work are released at once and none is held longer than MaxHold. Else a session is kept for Idle after its last message,
//     because accepting it again would cost some fifteen round trips.
//
// Not guaranteed: that the lock is held. It may have expired, unnoticed, at any moment: correctness must not rest on it.
package sessions

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/held"
	"github.com/sluice-cdc/sluice/projector/internal/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Options are a pool's settings.
type Options struct {
	// Topic and Subscription, or Queue, name the entity, which must require sessions.
	Topic, Subscription, Queue string
	Workers                    int           // sessions held at once
	Batch                      int           // messages received at once
	Idle                       time.Duration // how long to keep a session without messages
	MaxHold                    time.Duration // how long to keep a session while others may be waiting
	AcceptTimeout              time.Duration // how long one accept waits for a session; long, because each costs a dozen round trips
	CloseTimeout               time.Duration // how long giving a session back may take
	Logger                     *slog.Logger
	// Held, if set, is told +1 and -1 as sessions come and go.
	Held func(delta int)
	// Accepted, if set, is told how long each session that was accepted had been asked for.
	Accepted func(took time.Duration)
}

// maxPeekFailures is how many peeks may fail, with none that ever worked, before we take it that the broker has none.
const maxPeekFailures = 8

// Pool accepts and holds sessions.
type Pool struct {
	opts        Options
	connections []*connection
	outage      *outage.Outage

	peekWorked   atomic.Bool
	peekFailures atomic.Int32
	// blind says that peeks do not work here; messages are then received one by one.
	blind atomic.Bool

	mu      sync.Mutex
	demand  demand     // guarded by mu
	outlook outlook    // of sessions just accepted; guarded by mu
	waiting *list.List // of context.CancelFunc: the holders without work, the longest idle first; guarded by mu
}

// New makes a pool that spreads its workers over so many connections, each a client that dial makes: the SDK accepts one
// session at a time on each. Nothing is connected before the first use. The error is dial's.
func New(connections int, dial func() (*azservicebus.Client, error), opts Options) (*Pool, error) {
	p := &Pool{
		opts:    opts,
		outage:  outage.New(opts.Logger, "accepting sessions"),
		waiting: list.New(),
		demand:  demand{keep: opts.Idle},
	}
	for range connections {
		c := &connection{dial: dial, within: opts.CloseTimeout}
		if err := c.renew(); err != nil {
			return nil, err
		}
		p.connections = append(p.connections, c)
	}
	return p, nil
}

// Handler deals with one session until [Session.Receive] says [ErrRelease], or ctx ends. receiving ends when the pool is
// to stop; applying may outlive it, so that what has been received can be finished. Both end when the session's lock
// is lost, with [ErrLockLost] as the cause. Errors other than ErrRelease are logged, and the session is released as well.
type Handler func(receiving, applying context.Context, s *Session) error

// Run works until ctx ends and every session has been given back. The handlers' applying context derives from work,
// which may end later than ctx.
func (p *Pool) Run(ctx, work context.Context, handle Handler) {
	var workers sync.WaitGroup
	for i := range p.opts.Workers {
		workers.Go(func() { p.worker(ctx, work, p.connections[i%len(p.connections)], handle) })
	}
	workers.Wait()
}

// Use lends one of the pool's clients to use.
func (p *Pool) Use(ctx context.Context, use func(*azservicebus.Client) error) error {
	client, err := p.connections[0].take()
	if err != nil {
		return err
	}
	err = use(client.Client)
	client.giveBack(ctx, inDoubt(err))
	return err
}

// Close closes the connections; nobody uses the pool any more.
func (p *Pool) Close(ctx context.Context) {
	var all sync.WaitGroup
	for _, c := range p.connections {
		all.Go(func() { c.close(ctx) })
	}
	all.Wait()
}

// Err is why sessions cannot be accepted at the moment, or nil.
func (p *Pool) Err() error { return p.outage.Err() }

func (p *Pool) worker(ctx, work context.Context, connection *connection, handle Handler) {
	var backoff retry.Backoff
	seeker := p.seek()
	for ctx.Err() == nil {
		session, err := p.accept(ctx, connection, seeker)
		switch {
		case err == nil:
			backoff.Reset()
			p.outage.Report(nil)
			p.hold(ctx, work, session, handle)
			seeker = p.seek()
		case ctx.Err() != nil:
		case noSession(err):
			backoff.Reset()
			p.outage.Report(nil)
		default:
			p.outage.Report(err)
			_ = backoff.Wait(ctx) // its end is seen above
		}
	}
}

// noSession says whether an accept ended because none was there: the broker says so, or our own deadline came first.
func noSession(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	e, ok := errors.AsType[*azservicebus.Error](err)
	return ok && e.Code == azservicebus.CodeTimeout
}

// seek makes a worker one that looks for a session, until accept gives it one.
func (p *Pool) seek() *list.Element {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.demand.seek(time.Now())
}

func (p *Pool) accept(ctx context.Context, connection *connection, seeker *list.Element) (*Session, error) {
	client, err := connection.take()
	if err != nil {
		return nil, err
	}
	accepting, cancel := context.WithTimeout(ctx, p.opts.AcceptTimeout)
	defer cancel()
	asked := time.Now()
	var receiver *azservicebus.SessionReceiver
	if p.opts.Queue != "" {
		receiver, err = client.AcceptNextSessionForQueue(accepting, p.opts.Queue, nil)
	} else {
		receiver, err = client.AcceptNextSessionForSubscription(accepting, p.opts.Topic, p.opts.Subscription, nil)
	}
	if err != nil {
		client.giveBack(ctx, inDoubt(err))
		return nil, fmt.Errorf("accept next session: %w", err)
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand.found(seeker)
	if !p.demand.met(now) {
		// Two for one: should many sessions wait, the workers that look for them double each time.
		p.wakeOldest()
		p.wakeOldest()
	}
	if p.opts.Accepted != nil {
		p.opts.Accepted(now.Sub(asked))
	}
	return &Session{pool: p, client: client, receiver: held.New(receiver), accepted: now}, nil
}

// hold runs the handler with the lock renewed beside it, then gives the session back.
func (p *Pool) hold(ctx, work context.Context, s *Session, handle Handler) {
	if p.opts.Held != nil {
		p.opts.Held(+1)
		defer p.opts.Held(-1)
	}
	log := p.opts.Logger.With(telemetry.KeySession, s.ID())
	every := renewal(time.Until(s.receiver.LockedUntil()))

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
	err := handle(receiving, applying, s)
	stopRenewing()
	renewer.Wait()
	lost := context.Cause(applying)
	stopReceiving(nil)
	stopApplying(nil)
	switch {
	case errors.Is(lost, ErrLockLost):
		log.Warn("session lock lost; its messages will be delivered again", telemetry.KeyError, lost)
	case err != nil && !errors.Is(err, ErrRelease) && ctx.Err() == nil:
		log.Warn("session dropped; its messages will be delivered again", telemetry.KeyError, err)
	}

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.CloseTimeout)
	defer cancel()
	if err := s.receiver.Close(closing); err != nil {
		log.Debug("session not closed cleanly; its lock will expire", telemetry.KeyError, err)
	}
	s.client.giveBack(ctx, s.receiver.Broken())
}

// contended says that no worker is free, so that sessions with messages may be waiting for one.
func (p *Pool) contended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.demand.met(time.Now())
}

// idle gives the context for waiting without work. It ends after Idle, or when the pool needs this worker for another
// session. It is refused when the pool needs one now.
func (p *Pool) idle(ctx context.Context) (idle context.Context, stop func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.demand.met(time.Now()) {
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

// prospect says whether to peek at a session that was just accepted, and what to expect of it afterwards where not.
func (p *Pool) prospect() (due bool, after outlook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	due = p.outlook.due()
	return due, outlook{gap: p.outlook.gap, left: p.outlook.gap}
}

// found takes the outcome of a peek at a session that was just accepted.
func (p *Pool) found(more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outlook.saw(more)
}

// wakeOldest makes the holder that has been without work the longest give its session back. The caller holds mu.
func (p *Pool) wakeOldest() {
	if oldest := p.waiting.Front(); oldest != nil {
		p.waiting.Remove(oldest).(context.CancelFunc)()
	}
}

// peeked takes the outcome of a peek. A broker that has none makes every peek fail, and so does a broken connection, but
// not always.
func (p *Pool) peeked(err error) {
	if err == nil {
		p.peekWorked.Store(true)
		return
	}
	if !p.peekWorked.Load() && p.peekFailures.Add(1) == maxPeekFailures {
		p.blind.Store(true)
		p.opts.Logger.Warn("peeking at sessions does not work here; receiving messages one by one", telemetry.KeyError, err)
	}
}
