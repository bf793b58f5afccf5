package leader

import (
	"context"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
)

// Term is one stretch of leadership.
type Term struct {
	// Epoch is larger than that of every term before.
	Epoch int64
	// Generation is the stream's: a part of every MessageId.
	Generation int64
	// MappingFingerprint is that of the settings, for this stream.
	Fingerprint checkpoint.MappingFingerprint
	// Start is how far the leaders before have published.
	Start checkpoint.Progress

	acceptedAt string // the record's
	leaseID    string
	etag       azcore.ETag // only touched by the election's goroutine
	stopping   chan struct{}
	requests   chan chan error

	mu       sync.Mutex
	proven   time.Time // how long the last write proves that nobody takes over; zero before the first
	leased   time.Time // until shortly before the lease may run out
	progress func() checkpoint.Progress
}

func newTerm(leaseID string, leased time.Time, snapshot checkpoint.Snapshot, reading checkpoint.MappingFingerprint) *Term {
	start := snapshot.Record.Progress
	return &Term{
		Epoch:       snapshot.Record.Epoch + 1,
		Generation:  snapshot.Record.Generation,
		Fingerprint: reading.Inherit(snapshot.Record.Fingerprint),
		Start:       start,
		acceptedAt:  snapshot.Record.AcceptedAt,
		leaseID:     leaseID,
		leased:      leased,
		etag:        snapshot.ETag,
		stopping:    make(chan struct{}),
		requests:    make(chan chan error),
		progress:    func() checkpoint.Progress { return start },
	}
}

// Stopping is closed when the work shall finish what is under way and return.
func (t *Term) Stopping() <-chan struct{} { return t.stopping }

// Deadline is the moment on this machine's monotonic clock after which nothing may be sent: another leader may exist.
// It moves on with every successful heartbeat, as long as the lease lasts: whoever finds it expired takes it at once.
func (t *Term) Deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leased.Before(t.proven) {
		return t.leased
	}
	return t.proven
}

func (t *Term) extend(proven time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proven = proven
}

func (t *Term) extendLease(leased time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leased = leased
}

// Track makes every checkpoint from now on say what progress says. It is called from another goroutine and must not
// block.
func (t *Term) Track(progress func() checkpoint.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress = progress
}

func (t *Term) current() checkpoint.Progress {
	t.mu.Lock()
	progress := t.progress
	t.mu.Unlock()
	return progress()
}

// Checkpoint writes one now and returns when it is written, or why it was not. Only for the moments where waiting for
// the next heartbeat would lose something: the first token of a stream.
func (t *Term) Checkpoint(ctx context.Context) error {
	result := make(chan error, 1)
	select {
	case t.requests <- result:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
