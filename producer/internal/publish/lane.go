package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// lane sends the batches of its sessions, one after the other.
type lane struct {
	number    int
	publisher *Publisher
	waiting   *queue // only touched by run

	mu     sync.Mutex
	inbox  []item // published and not yet in waiting
	closed bool
	wake   chan struct{} // holds a token after each push or close
}

func newLane(number int, p *Publisher) *lane {
	return &lane{number: number, publisher: p, waiting: newQueue(), wake: make(chan struct{}, 1)}
}

func (l *lane) push(i item) {
	l.mu.Lock()
	l.inbox = append(l.inbox, i)
	l.mu.Unlock()
	l.signal()
}

func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.signal()
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// wait moves what has been published into the queue. It returns true when something waits to be sent, false when nothing
// ever will again.
func (l *lane) wait(ctx context.Context) (bool, error) {
	for {
		l.mu.Lock()
		for _, i := range l.inbox {
			l.waiting.push(i)
		}
		clear(l.inbox)
		l.inbox = l.inbox[:0]
		closed := l.closed
		l.mu.Unlock()
		if l.waiting.length > 0 || closed {
			return l.waiting.length > 0, nil
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

func (l *lane) run(ctx context.Context) error {
	for {
		more, err := l.wait(ctx)
		if err != nil || !more {
			return err
		}
		batch, items, err := l.fill(ctx)
		if err != nil {
			return err
		}
		if err := l.send(ctx, batch, len(items)); err != nil {
			return err
		}
		l.publisher.acknowledged(items)
	}
}

// fill takes as much of what waits as one batch may hold.
func (l *lane) fill(ctx context.Context) (Batch, []item, error) {
	batch, err := l.newBatch(ctx)
	if err != nil {
		return nil, nil, err
	}
	var items []item
	for l.waiting.front() != nil && len(items) < l.publisher.config.BatchMessages {
		waiting := l.waiting.front().items
		n, err := l.add(batch, waiting[:min(len(waiting), l.publisher.config.BatchMessages-len(items))])
		if n > 0 {
			items = append(items, l.waiting.take(n)...)
		}
		if errors.Is(err, errFull) || (err == nil && l.publisher.config.Scope == ScopeSession) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return batch, items, nil
}

// add puts the items into the batch in order, and says how many fit.
func (l *lane) add(batch Batch, items []item) (n int, err error) {
	for n := range items {
		if err := l.publisher.encode(&items[n]); err != nil {
			return n, err
		}
		switch err := batch.Add(items[n].message); {
		case errors.Is(err, ErrOversized):
			return n, oversized(items[n])
		case err != nil:
			return n, err
		}
		items[n].message, items[n].change = nil, envelope.Change{} // the batch holds all that is needed, once
	}
	return len(items), nil
}

// newBatch begins a batch, which needs the link, which may need a connection: tried for as long as this process leads.
func (l *lane) newBatch(ctx context.Context) (Batch, error) {
	var batch Batch
	err := l.persist(ctx, 0, func(ctx context.Context) (err error) {
		batch, err = l.publisher.broker.NewBatch(ctx)
		return err
	})
	return batch, err
}

// send sends the batch until it is acknowledged. Both other outcomes, not sent and unknown, have one answer: the same
// batch again, before anything later of this lane.
func (l *lane) send(ctx context.Context, batch Batch, size int) error {
	metrics := l.publisher.metrics
	start := time.Now()
	err := l.persist(ctx, size, func(ctx context.Context) error {
		return l.publisher.broker.Send(ctx, batch)
	})
	if err != nil {
		return err
	}
	metrics.acknowledged(size, time.Since(start))
	return nil
}

// persist tries until it succeeds or ctx ends. No attempt begins or lasts beyond the fence.
func (l *lane) persist(ctx context.Context, size int, attempt func(context.Context) error) error {
	p := l.publisher
	backoff := retry.Backoff{Initial: 50 * time.Millisecond, Max: 2 * time.Second}
	for {
		err := l.fenced(ctx, attempt)
		if err == nil {
			if backoff.Attempts() > 0 && p.troubled.Add(-1) == 0 {
				p.log.Info("Service Bus answers again", telemetry.KeyLane, l.number, telemetry.KeyAttempt, backoff.Attempts()+1)
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.metrics.retried()
		if backoff.Attempts() == 0 && p.troubled.Add(1) == 1 { // one line when it begins; the metric counts the rest
			p.log.Warn("Service Bus does not take what is sent, trying on", telemetry.KeyLane, l.number, telemetry.KeyBatch, size, telemetry.KeyError, err)
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// fenced runs one attempt inside what is left of the time in which this process may act as the leader.
func (l *lane) fenced(ctx context.Context, attempt func(context.Context) error) error {
	deadline := l.publisher.fence.Deadline()
	if !time.Now().Before(deadline) {
		return fmt.Errorf("wait for a heartbeat: %w", errNoFence)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return attempt(ctx)
}
