package producer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/outage"
)

// requests brings what an operator requests of a stream's snapshot from beside the checkpoint to
// the reader, and the answer back. It is made for one term.
type requests struct {
	checkpoint *checkpoint.Checkpoint
	instance   string
	outage     *outage.Outage
	answers    chan struct{} // an answer is to be written

	mu      sync.Mutex
	waiting *checkpoint.Request // for the reader; nil if none waits
	tag     store.Tag           // of the request that was read last
	answer  *checkpoint.Request // to be written, over the tag over; nil if none is
	over    store.Tag
	seen    string // the id of the request that was answered last
}

var _ changes.Requests = (*requests)(nil)

func newRequests(c *checkpoint.Checkpoint, instance string, log *slog.Logger) *requests {
	return &requests{checkpoint: c, instance: instance, outage: outage.New(log, "requests of operators"), answers: make(chan struct{}, 1)}
}

// Waiting returns the request that waits for an answer; nil without one.
func (q *requests) Waiting() *checkpoint.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Answer records that a request is carried out, or refused. It is written in parallel.
func (q *requests) Answer(r *checkpoint.Request, refused error) {
	answer := *r
	answer.AnsweredBy, answer.AnsweredAt = q.instance, time.Now().UTC()
	if refused != nil {
		answer.Refused = refused.Error()
	}
	q.mu.Lock()
	q.waiting, q.answer, q.over, q.seen = nil, &answer, q.tag, r.ID
	q.mu.Unlock()
	q.wake()
}

// wake makes run write the answer.
func (q *requests) wake() {
	select {
	case q.answers <- struct{}{}:
	default: // it will
	}
}

// requestTimeout bounds the requests to storage of one exchange.
const requestTimeout = 2 * time.Second

// run reads the last request at every interval until ctx ends. The last answer is written even
// then.
func (q *requests) run(ctx context.Context, interval time.Duration) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		_ = q.write(ctx) // otherwise a successor finds that there is nothing to do
	}()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		q.exchange(ctx)
		select {
		case <-ctx.Done():
			return
		case <-q.answers:
		case <-tick.C:
		}
	}
}

// exchange writes the answer, if there is one, and reads the last request.
func (q *requests) exchange(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := q.write(limited)
	if err == nil {
		err = q.read(limited)
	}
	if ctx.Err() == nil {
		q.outage.Report(err)
	}
}

// write writes the answer, if there is one. If the request has changed meanwhile, read decides
// whether it still waits for the answer.
func (q *requests) write(ctx context.Context) error {
	q.mu.Lock()
	answer, tag := q.answer, q.over
	q.mu.Unlock()
	if answer == nil {
		return nil
	}
	switch err := q.checkpoint.WriteRequest(ctx, *answer, tag); {
	case errors.Is(err, checkpoint.ErrChanged):
		return nil
	case err != nil:
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.answer == answer {
		q.answer = nil
	}
	return nil
}

// read reads the last request, and keeps it for the reader if it waits for an answer. It first
// records that this leader has taken it, so that none is carried out that an operator has
// withdrawn.
func (q *requests) read(ctx context.Context) error {
	r, tag, err := q.checkpoint.LastRequest(ctx)
	if err == nil && r.Waiting() && r.TakenBy != q.instance {
		r.TakenBy = q.instance
		if err = q.checkpoint.WriteRequest(ctx, *r, tag); err == nil {
			r, tag, err = q.checkpoint.LastRequest(ctx)
		}
	}
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !r.Waiting():
		q.waiting, q.answer = nil, nil // it was withdrawn
	case r.ID != q.seen:
		q.waiting, q.tag, q.answer = r, tag, nil
	case q.answer != nil && q.over != tag: // a deposed leader has taken it as well
		q.over = tag
		q.wake()
	}
	return nil
}
