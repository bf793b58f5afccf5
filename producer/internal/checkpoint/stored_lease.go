package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/store"
)

// maxConflicts is how often a step is tried again because another client changed the object between
// its read and its write.
const maxConflicts = 10

// storedLease is a record with its lease in one object of a store, so that a write checks both.
//
// The lease never expires, because no clock decides anything: an observer that has seen the same
// tag for TAKEOVER_AFTER, by its own monotonic clock, breaks it. That tag is a part of the object,
// and only writes of the record change it. The tag of the store changes with every step, also when
// the lease is acquired; it is the condition of each step's write, and callers never see it.
type storedLease struct {
	store store.Store
	name  string

	mu   sync.Mutex
	last held // as this client last read or wrote the object; guarded by mu
}

// held is the object as it was at a write of the store's.
type held struct {
	leased
	at store.Tag // the store's
}

// leased is the content of the object.
type leased struct {
	Tag    store.Tag       `json:"tag"`
	Lease  string          `json:"lease,omitempty"`
	Record json.RawMessage `json:"record"`
}

var _ leasedObject = (*storedLease)(nil)

func (l *storedLease) get(ctx context.Context) (held, error) {
	object, err := l.store.Get(ctx, l.name)
	if err != nil {
		return held{}, err
	}
	h := held{at: object.Tag}
	if err := json.Unmarshal(object.Data, &h.leased); err != nil {
		return held{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if h.Tag == "" || len(h.Record) == 0 {
		return held{}, fmt.Errorf("%w: it has no tag or no record", ErrUnreadable)
	}
	return h, nil
}

// step replaces what decide returns, if no other client has changed the object since it was read;
// otherwise it reads the object and decides again. from is the object to begin with, or zero: it is
// read first. decide returns nil if there is nothing to do.
func (l *storedLease) step(ctx context.Context, from held, decide func(leased) (*leased, error)) error {
	for range maxConflicts {
		var err error
		if from.at == "" {
			if from, err = l.get(ctx); err != nil {
				return err
			}
		}
		next, err := decide(from.leased)
		if next == nil || err != nil {
			return err
		}
		text, err := json.Marshal(next)
		if err != nil {
			return err
		}
		at, err := l.store.Put(ctx, l.name, text, from.at)
		if err == nil {
			l.mu.Lock()
			l.last = held{*next, at}
			l.mu.Unlock()
			return nil
		}
		if !errors.Is(err, store.ErrChanged) {
			return err
		}
		from = held{}
	}
	return fmt.Errorf("%w %d times in a row", ErrChanged, maxConflicts)
}

func (l *storedLease) read(ctx context.Context) ([]byte, Snapshot, error) {
	h, err := l.get(ctx)
	if err != nil {
		return nil, Snapshot{}, err
	}
	snapshot := Snapshot{Tag: h.Tag, Leased: h.Lease != "", LeaseState: "available"}
	if snapshot.Leased {
		snapshot.LeaseState = "leased"
	}
	return h.Record, snapshot, nil
}

func (l *storedLease) create(ctx context.Context, text []byte) error {
	object, err := json.Marshal(leased{Tag: store.NewTag(), Record: text})
	if err != nil {
		return err
	}
	_, err = l.store.Create(ctx, l.name, object)
	return err
}

// write needs one request as long as no other client changes the object.
func (l *storedLease) write(ctx context.Context, text []byte, leaseID string, tag store.Tag) (store.Tag, error) {
	l.mu.Lock()
	from := l.last
	l.mu.Unlock()
	if from.Lease != leaseID || from.Tag != tag {
		from = held{}
	}
	written := store.NewTag()
	err := l.step(ctx, from, func(now leased) (*leased, error) {
		switch {
		case now.Lease != leaseID:
			return nil, ErrLeaseLost
		case now.Tag != tag:
			return nil, ErrChanged
		}
		return &leased{Tag: written, Lease: leaseID, Record: text}, nil
	})
	return written, err
}

func (l *storedLease) acquire(ctx context.Context, leaseID string, _ time.Duration, tag store.Tag) error {
	return l.step(ctx, held{}, func(now leased) (*leased, error) {
		switch {
		case now.Lease == leaseID:
			return nil, nil // an earlier request whose response was lost
		case now.Lease != "":
			return nil, ErrLeaseHeld
		case now.Tag != tag:
			return nil, ErrChanged
		}
		return &leased{Tag: now.Tag, Lease: leaseID, Record: now.Record}, nil
	})
}

// renew does nothing: every write of the record shows that the holder runs.
func (l *storedLease) renew(context.Context, string) error { return nil }

func (l *storedLease) release(ctx context.Context, leaseID string) error {
	return l.step(ctx, held{}, func(now leased) (*leased, error) {
		if now.Lease != leaseID {
			return nil, ErrLeaseLost
		}
		return &leased{Tag: now.Tag, Record: now.Record}, nil
	})
}

func (l *storedLease) breakLease(ctx context.Context, tag store.Tag) error {
	return l.step(ctx, held{}, func(now leased) (*leased, error) {
		switch {
		case now.Tag != tag:
			return nil, ErrChanged
		case now.Lease == "":
			return nil, nil
		}
		return &leased{Tag: now.Tag, Record: now.Record}, nil
	})
}
