// Package claims gets the bodies that messages could not carry.
//
// Guaranteed: the bytes that are held at once are bounded, whatever the number of sessions; a body is refused for good only
// when its blob is gone or holds something else. Storage that is away, slow, or does not let us in is waited for.
//
// Not guaranteed: order between sessions that wait for room.
package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
)

const (
	// MaxBytes bounds the bodies that are held at once. A larger one is held alone.
	MaxBytes = 64 << 20
	// attemptTimeout bounds one attempt: 16 MB at 0.5 MB/s.
	attemptTimeout = 30 * time.Second
)

// errUnconfigured is a projector that meets a claim check and has no storage to go to. It waits: the message is fine.
var errUnconfigured = errors.New("a message's body is kept in Blob storage, and this projector is not told where: " +
	"set BLOB_ACCOUNT_URL (or, for an emulator, BLOB_CONNECTION_STRING) and CLAIM_CHECK_CONTAINER as the producer's are")

// Store is where the bodies are: [claim.Store].
type Store interface {
	// Get gives the change its body. An [*envelope.Error] is final.
	Get(ctx context.Context, c *envelope.Change) error
}

// Redeemer redeems claim checks. It is safe for concurrent use.
type Redeemer struct {
	store  Store // nil: none is configured
	room   *semaphore.Weighted
	outage *outage.Outage
}

// New makes a redeemer; store may be nil.
func New(store Store, log *slog.Logger) *Redeemer {
	return &Redeemer{store: store, room: semaphore.NewWeighted(MaxBytes), outage: outage.New(log, "claim checks")}
}

// Redeem gives the change its body, for as long as that takes: the error is final (an [*envelope.Error]), or the cause of
// ctx, which has ended. done must be called when the body is not needed any more; it is never nil.
func (r *Redeemer) Redeem(ctx context.Context, c *envelope.Change) (done func(), err error) {
	size := min(c.Claim.Size, MaxBytes)
	if err := r.room.Acquire(ctx, size); err != nil {
		return func() {}, fmt.Errorf("wait for room for a body of %d bytes: %w", c.Claim.Size, context.Cause(ctx))
	}
	done = func() { r.room.Release(size) }
	var backoff retry.Backoff
	for {
		err := r.get(ctx, c)
		if _, final := errors.AsType[*envelope.Error](err); final || err == nil {
			r.outage.Report(nil)
			return done, err
		}
		if ctx.Err() == nil {
			r.outage.Report(err)
		}
		if err := backoff.Wait(ctx); err != nil {
			return done, fmt.Errorf("wait for a claimed body: %w", err)
		}
	}
}

func (r *Redeemer) get(ctx context.Context, c *envelope.Change) error {
	if r.store == nil {
		return errUnconfigured
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return r.store.Get(ctx, c)
}

// Err is why claim checks cannot be redeemed at the moment, or nil.
func (r *Redeemer) Err() error { return r.outage.Err() }
