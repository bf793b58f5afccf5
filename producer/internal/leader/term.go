package leader

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
)

// Term is one period of leadership.
type Term struct {
	// Epoch is larger than that of every earlier term.
	Epoch int64
	// Generation is the stream's generation, a part of every MessageId.
	Generation int64
	// Fingerprint is that of the current settings, for this stream.
	Fingerprint checkpoint.MappingFingerprint
	// Start is how far the earlier leaders have published.
	Start checkpoint.Progress

	acceptedAt string // the record's
	leaseID    string
	tag        store.Tag // only touched by the election's goroutine
	stopping   chan struct{}
	requests   chan chan error

	mu       sync.Mutex
	proven   time.Time // until when the last write proves that no standby takes over; zero before the first
	leased   time.Time // until shortly before the lease may expire
	progress func() checkpoint.Progress
}

func newTerm(epoch int64, leaseID string, leased time.Time, snapshot checkpoint.Snapshot, reading checkpoint.MappingFingerprint) *Term {
	start := snapshot.Record.Progress
	return &Term{
		Epoch:       epoch,
		Generation:  snapshot.Record.Generation,
		Fingerprint: reading.Inherit(snapshot.Record.Fingerprint),
		Start:       start,
		acceptedAt:  snapshot.Record.AcceptedAt,
		leaseID:     leaseID,
		leased:      leased,
		tag:         snapshot.Tag,
		stopping:    make(chan struct{}),
		requests:    make(chan chan error),
		progress:    func() checkpoint.Progress { return start },
	}
}

// Stopping returns a channel that is closed when the work must finish what is in progress and
// return.
func (t *Term) Stopping() <-chan struct{} { return t.stopping }

// Deadline returns the time on this machine's monotonic clock after which nothing may be sent:
// another leader may exist. Every successful heartbeat extends it, as long as the lease lasts: a
// standby that finds the lease expired acquires it at once.
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

// Track sets the function that returns the progress for every checkpoint from now on. It is called
// from another goroutine and must not block.
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

// Checkpoint writes a checkpoint now and returns when it is written, or the error. It is only for
// progress that must not wait for the next heartbeat: the first token of a stream.
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
