package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
)

var errAway = errors.New("storage is away")

// memory is a checkpoint with a lease, in memory, with the rules of Blob storage that the election
// relies on.
type memory struct {
	mu      sync.Mutex
	exists  bool
	marked  bool
	record  checkpoint.Record
	version int
	holder  string
	until   time.Time
	writes  []checkpoint.Record
	log     []string // lease operations that took effect
}

// view is one instance's access to the memory. fault is called at each request: an error from
// before keeps the request from arriving, an error from after keeps the response from arriving.
type view struct {
	*memory
	mu     sync.Mutex
	before func(ctx context.Context, op string) error
	after  func(ctx context.Context, op string) error
}

func (m *memory) view() *view { return &view{memory: m} }

func (v *view) set(before, after func(context.Context, string) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.before, v.after = before, after
}

func (v *view) do(ctx context.Context, op string, f func() error) error {
	v.mu.Lock()
	before, after := v.before, v.after
	v.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if before != nil {
		if err := before(ctx, op); err != nil {
			return err
		}
	}
	v.memory.mu.Lock()
	err := f()
	v.memory.mu.Unlock()
	if after != nil {
		if lost := after(ctx, op); lost != nil {
			return lost
		}
	}
	return err
}

func (m *memory) etag() azcore.ETag { return azcore.ETag(fmt.Sprint(m.version)) }

func (m *memory) leased() bool { return m.holder != "" && time.Now().Before(m.until) }

func (v *view) Read(ctx context.Context) (s checkpoint.Snapshot, err error) {
	err = v.do(ctx, "read", func() error {
		if !v.exists {
			return checkpoint.ErrNotFound
		}
		s = checkpoint.Snapshot{Record: v.record, ETag: v.etag(), Leased: v.leased()}
		return nil
	})
	return s, err
}

func (v *view) Create(ctx context.Context, r checkpoint.Record) error {
	return v.do(ctx, "create", func() error {
		switch {
		case v.exists:
			return checkpoint.ErrChanged
		case v.marked:
			return checkpoint.ErrGone
		}
		v.exists, v.record, v.version = true, r, v.version+1
		return nil
	})
}

func (v *view) MarkBegan(ctx context.Context) error {
	return v.do(ctx, "mark", func() error {
		v.marked = true
		return nil
	})
}

func (v *view) Write(ctx context.Context, r checkpoint.Record, leaseID string, etag azcore.ETag) (written azcore.ETag, err error) {
	err = v.do(ctx, "write", func() error {
		switch {
		case !v.exists:
			return checkpoint.ErrNotFound
		case v.holder != leaseID || !v.leased():
			return checkpoint.ErrLeaseLost
		case v.etag() != etag:
			return checkpoint.ErrChanged
		}
		v.record, v.version = r, v.version+1
		v.writes = append(v.writes, r)
		written = v.etag()
		return nil
	})
	return written, err
}

func (v *view) Acquire(ctx context.Context, leaseID string, d time.Duration, etag azcore.ETag) error {
	return v.do(ctx, "acquire", func() error {
		switch {
		case v.leased():
			return checkpoint.ErrLeaseHeld
		case v.etag() != etag:
			return checkpoint.ErrChanged
		}
		v.holder, v.until = leaseID, time.Now().Add(d)
		v.log = append(v.log, "acquire")
		return nil
	})
}

func (v *view) Renew(ctx context.Context, leaseID string) error {
	return v.do(ctx, "renew", func() error {
		if v.holder != leaseID {
			return checkpoint.ErrLeaseLost
		}
		v.until = time.Now().Add(15 * time.Second)
		return nil
	})
}

func (v *view) Release(ctx context.Context, leaseID string) error {
	return v.do(ctx, "release", func() error {
		if v.holder != leaseID {
			return checkpoint.ErrLeaseLost
		}
		v.holder = ""
		v.log = append(v.log, "release")
		return nil
	})
}

func (v *view) Break(ctx context.Context, etag azcore.ETag) error {
	return v.do(ctx, "break", func() error {
		if v.etag() != etag {
			return checkpoint.ErrChanged
		}
		v.holder = ""
		v.log = append(v.log, "break")
		return nil
	})
}
