package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-cdc/sluice/producer/store"
)

// maxRecordBytes bounds what is read into memory, and therefore what is written. A record has about
// 1 KB, but its token contains the document's _id: it is part of a change event, which MongoDB
// limits to 16 MB.
const maxRecordBytes = 17 << 20

// Snapshot is the record as it was read, with the tag for a conditional write.
type Snapshot struct {
	Record Record
	Tag    store.Tag
	// Leased reports whether a replica held the lease at that moment.
	Leased bool
	// LeaseState is the state of the lease, for operators: of a blob, the service's (available,
	// leased, expired, breaking or broken); otherwise available or leased.
	LeaseState string
}

// leasedObject is the object that holds the record, with the lease under which it is written.
// Every write gives it another tag, and nothing else does: acquiring, breaking and releasing the
// lease keep it.
type leasedObject interface {
	read(ctx context.Context) (text []byte, s Snapshot, err error)
	create(ctx context.Context, text []byte) error
	write(ctx context.Context, text []byte, leaseID string, tag store.Tag) (store.Tag, error)
	acquire(ctx context.Context, leaseID string, d time.Duration, tag store.Tag) error
	renew(ctx context.Context, leaseID string) error
	release(ctx context.Context, leaseID string) error
	breakLease(ctx context.Context, tag store.Tag) error
}

// Checkpoint is the checkpoint of one stream. Its methods are safe for concurrent use.
type Checkpoint struct {
	stream string
	beside store.Store // holds everything but the record
	record leasedObject
	// expires reports whether a lease ends if its holder does not renew it.
	expires bool
	marked  atomic.Bool // the stream is marked as begun
}

// NewBlob returns the checkpoint of a stream in Blob storage: STREAM.json in the container, with
// the service's lease. The client must have been created with Retry.MaxRetries: -1, so that the SDK
// repeats no request: the repeat of a conditional write whose response was lost would be refused.
func NewBlob(c *container.Client, stream string) *Checkpoint {
	return &Checkpoint{
		stream: stream, beside: Container(c), expires: true,
		record: &leasedBlob{container: c, blob: c.NewBlockBlobClient(stream + recordSuffix)},
	}
}

// New returns the checkpoint of a stream in a store: the object STREAM.json, which also holds the
// lease.
func New(s store.Store, stream string) *Checkpoint {
	return &Checkpoint{stream: stream, beside: s, record: &storedLease{store: s, name: stream + recordSuffix}}
}

// recordSuffix is the suffix of the object that holds a record.
const recordSuffix = ".json"

// Expires reports whether a lease ends if its holder does not renew it. If not, only the record's
// tag shows whether the holder of the lease still runs.
func (c *Checkpoint) Expires() bool { return c.expires }

// Read reads the record. It needs no lease. Errors: [ErrNotFound], [ErrUnreadable], or the store's.
func (c *Checkpoint) Read(ctx context.Context) (Snapshot, error) { return c.readBy(ctx, decode) }

func (c *Checkpoint) readBy(ctx context.Context, decode func(text []byte, stream string) (Record, error)) (Snapshot, error) {
	text, snapshot, err := c.record.read(ctx)
	if err == nil {
		snapshot.Record, err = decode(text, c.stream)
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("read checkpoint: %w", err)
	}
	return snapshot, nil
}

// decode returns the record of a stream. Errors wrap [ErrUnreadable], of a record that was moved
// also [ErrMoved].
func decode(text []byte, stream string) (Record, error) {
	r, err := parse(text, stream)
	if err == nil {
		err = r.unmoved()
	}
	return r, err
}

// parse is like [decode], and also returns a record that stays behind after a move.
func parse(text []byte, stream string) (r Record, err error) {
	if err := json.Unmarshal(text, &r); err != nil {
		if !errors.Is(err, ErrUnreadable) {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		return Record{}, err
	}
	if r.Stream != stream {
		return Record{}, fmt.Errorf("%w: it belongs to stream %q", ErrUnreadable, r.Stream)
	}
	return r, nil
}

func encode(r Record) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(text) > maxRecordBytes {
		return nil, fmt.Errorf("the record has %d bytes, of which no version reads more than %d: %w", len(text), maxRecordBytes, store.ErrTooLarge)
	}
	return text, nil
}

// Create writes the first record of a stream, and creates the blob container if necessary. Errors:
// [ErrChanged] if the record exists already, [ErrGone] if it once existed, or the store's.
func (c *Checkpoint) Create(ctx context.Context, r Record) error {
	if err := c.Missing(ctx); err != nil {
		return fmt.Errorf("create checkpoint: %w", err)
	}
	return c.Restore(ctx, r)
}

// Restore is like Create, for a stream that has had a leader: it recreates the checkpoint. Errors:
// [ErrChanged] if the record exists, or the store's.
func (c *Checkpoint) Restore(ctx context.Context, r Record) error {
	text, err := encode(r)
	if err == nil {
		err = c.record.create(ctx, text)
	}
	if err != nil {
		return fmt.Errorf("create checkpoint: %w", err)
	}
	return nil
}

// Write replaces the record under the lease, if it still has this tag. Errors: [ErrChanged],
// [ErrLeaseLost], [ErrNotFound], [store.ErrTooLarge], or the store's; after any other error it is
// unknown whether the record was written.
func (c *Checkpoint) Write(ctx context.Context, r Record, leaseID string, tag store.Tag) (store.Tag, error) {
	text, err := encode(r)
	var written store.Tag
	if err == nil {
		written, err = c.record.write(ctx, text, leaseID, tag)
	}
	if err != nil {
		return "", fmt.Errorf("write checkpoint: %w", err)
	}
	return written, nil
}

// Acquire acquires the free lease of a record that still has this tag; of a blob, for d (15 to 60
// s, whole seconds). Errors: [ErrLeaseHeld], [ErrChanged], or the store's.
func (c *Checkpoint) Acquire(ctx context.Context, leaseID string, d time.Duration, tag store.Tag) error {
	if err := c.record.acquire(ctx, leaseID, d, tag); err != nil {
		return fmt.Errorf("acquire lease: %w", err)
	}
	return nil
}

// Renew restarts the lease's duration, if it has one. Errors: [ErrLeaseLost], or the store's.
func (c *Checkpoint) Renew(ctx context.Context, leaseID string) error {
	if err := c.record.renew(ctx, leaseID); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}

// Release releases the lease. Errors: [ErrLeaseLost], or the store's.
func (c *Checkpoint) Release(ctx context.Context, leaseID string) error {
	if err := c.record.release(ctx, leaseID); err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

// Break breaks the lease of another holder at once, if the record still has this tag: a holder that
// wrote meanwhile keeps it. Errors: [ErrChanged], or the store's; a free lease is not an error.
func (c *Checkpoint) Break(ctx context.Context, tag store.Tag) error {
	if err := c.record.breakLease(ctx, tag); err != nil {
		return fmt.Errorf("break lease: %w", err)
	}
	return nil
}

// Remove deletes the record and what is beside it; it is for a scratch checkpoint without a
// leader. Errors are the store's.
func (c *Checkpoint) Remove(ctx context.Context) error {
	names, err := c.beside.List(ctx, c.stream+recordSuffix)
	for _, name := range names {
		if gone := c.beside.Delete(ctx, name); !errors.Is(gone, ErrNotFound) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
