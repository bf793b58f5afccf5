package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
)

const (
	// maxBodyBytes bounds the bodies that are held at once. A larger one is held alone.
	maxBodyBytes = 64 << 20
	// attemptTimeout, and what the body takes at attemptRate bytes a second, bound one attempt.
	attemptTimeout = 2 * time.Second
	attemptRate    = 500_000
)

// errUnconfigured is a claim check that meets a projector without storage settings. The message is
// fine, so it waits.
var errUnconfigured = errors.New("a message's body is in Blob storage, and this projector is not configured to read it: " +
	"set BLOB_ACCOUNT_URL (or, for an emulator, BLOB_CONNECTION_STRING) and CLAIM_CHECK_CONTAINER as the producer's are")

// fetch fetches the body of a change, while other sessions are handled. The error is why the
// session cannot be handled any further.
func (h *handler) fetch(ctx context.Context, b *batch, i int) (attempt, error) {
	b.dropBody()
	var done func()
	c, claim, a := &b.changes[i], b.changes[i].Claim, attempt{fetched: true, change: i}
	err := h.session.Yield(ctx, b.bytes(), func(bool) { done, a.err = h.claims.fetch(ctx, c) })
	if a.err != nil {
		return a, err
	}
	b.fetched = &fetchedBody{message: b.events[i].message, claim: claim, done: done}
	if err != nil {
		return a, err
	}
	return a, h.refuse(ctx, &batch{changes: b.changes[i : i+1]})
}

// fetchedBody is the body of a message with a claim check.
type fetchedBody struct {
	message *azservicebus.ReceivedMessage
	claim   *envelope.Claim
	done    func() // frees the memory
}

// dropBody frees the body that was fetched last. If its change is not decided, an attempt fetches
// it again.
func (b *batch) dropBody() {
	if b.fetched == nil {
		return
	}
	for i := range b.events {
		if b.events[i].message == b.fetched.message {
			b.changes[i].Body, b.changes[i].Claim = nil, b.fetched.claim
		}
	}
	b.fetched.done()
	b.fetched = nil
}

// Bodies fetches bodies: [claim.Store].
type Bodies interface {
	// Get gives the change its body. An [*envelope.Error] is final.
	Get(ctx context.Context, c *envelope.Change) error
}

// redeemer fetches the bodies of messages with a claim check. It is safe for concurrent use.
//
// Guaranteed: the bytes held in memory at once are bounded, regardless of the number of sessions; a
// body is refused permanently only if its blob is gone or has other content. While storage is
// unavailable, slow, or denies access, the request is retried. Not guaranteed: order between
// sessions that wait for memory.
type redeemer struct {
	bodies Bodies // nil if not configured
	room   *semaphore.Weighted
	outage *outage.Outage
}

// newRedeemer returns a redeemer; bodies may be nil.
func newRedeemer(bodies Bodies, log *slog.Logger) *redeemer {
	return &redeemer{bodies: bodies, room: semaphore.NewWeighted(maxBodyBytes), outage: outage.New(log, "claim checks")}
}

// redeem gives the change its body, and retries until that succeeds or ctx ends. The error is final
// (an [*envelope.Error]), or the cause of ctx. done must be called when the body is no longer
// needed; it is never nil.
func (r *redeemer) redeem(ctx context.Context, c *envelope.Change) (done func(), err error) {
	var backoff retry.Backoff
	for {
		done, err := r.fetch(ctx, c)
		if _, final := errors.AsType[*envelope.Error](err); final || err == nil {
			return done, err
		}
		if err := backoff.Wait(ctx); err != nil {
			return done, fmt.Errorf("wait for a claimed body: %w", err)
		}
	}
}

// fetch fetches the body of a change, in one attempt. An error that is not an [*envelope.Error]
// does not concern the body. done must be called when the body is no longer needed; it is never
// nil.
func (r *redeemer) fetch(ctx context.Context, c *envelope.Change) (done func(), err error) {
	size := min(c.Claim.Size, maxBodyBytes)
	if err := r.room.Acquire(ctx, size); err != nil {
		return func() {}, fmt.Errorf("wait for room for a body of %d bytes: %w", c.Claim.Size, context.Cause(ctx))
	}
	err = r.get(ctx, c)
	_, final := errors.AsType[*envelope.Error](err)
	switch {
	case final || err == nil:
		r.outage.Report(nil)
	case ctx.Err() == nil:
		r.outage.Report(err)
	}
	if err != nil {
		r.room.Release(size)
		return func() {}, err
	}
	return func() { r.room.Release(size) }, nil
}

func (r *redeemer) get(ctx context.Context, c *envelope.Change) error {
	if r.bodies == nil {
		return errUnconfigured
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout+time.Duration(c.Claim.Size)*time.Second/attemptRate)
	defer cancel()
	return r.bodies.Get(ctx, c)
}
