package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
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
	before fault
	after  fault
}

// fault is called with the kind of a request.
type fault func(ctx context.Context, op string) error

func (m *memory) view() *view { return &view{memory: m} }

func (v *view) set(before, after fault) {
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

func (m *memory) tag() store.Tag { return store.Tag(fmt.Sprint(m.version)) }

func (m *memory) leased() bool { return m.holder != "" && time.Now().Before(m.until) }

func (v *view) Read(ctx context.Context) (s checkpoint.Snapshot, err error) {
	err = v.do(ctx, "read", func() error {
		if !v.exists {
			return checkpoint.ErrNotFound
		}
		s = checkpoint.Snapshot{Record: v.record, Tag: v.tag(), Leased: v.leased()}
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

func (v *view) NextEpoch(ctx context.Context, seen int64) (int64, error) {
	return seen + 1, v.do(ctx, "mark", func() error {
		v.marked = true
		return nil
	})
}

func (v *view) Write(ctx context.Context, r checkpoint.Record, leaseID string, tag store.Tag) (written store.Tag, err error) {
	err = v.do(ctx, "write", func() error {
		switch {
		case !v.exists:
			return checkpoint.ErrNotFound
		case v.holder != leaseID || !v.leased():
			return checkpoint.ErrLeaseLost
		case v.tag() != tag:
			return checkpoint.ErrChanged
		}
		v.record, v.version = r, v.version+1
		v.writes = append(v.writes, r)
		written = v.tag()
		return nil
	})
	return written, err
}

func (v *view) Acquire(ctx context.Context, leaseID string, d time.Duration, tag store.Tag) error {
	return v.do(ctx, "acquire", func() error {
		switch {
		case v.leased():
			return checkpoint.ErrLeaseHeld
		case v.tag() != tag:
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

func (v *view) Break(ctx context.Context, tag store.Tag) error {
	return v.do(ctx, "break", func() error {
		if v.tag() != tag {
			return checkpoint.ErrChanged
		}
		v.holder = ""
		v.log = append(v.log, "break")
		return nil
	})
}
