package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/producer/store"
)

// markSuffix is the suffix of the object beside a checkpoint which records that the stream has had
// a leader. No stream's own object can have such a name: those end in .json.
const markSuffix = ".json.began"

// ErrGone reports that the checkpoint does not exist although its marker shows that the stream has
// had a leader: it was deleted. A new checkpoint would lose the changes since, so an operator must
// decide.
var ErrGone = errors.New("the checkpoint is gone, and the stream has had a leader before: it was deleted")

// mark is the content of the marker.
type mark struct {
	Stream  string    `json:"stream"`
	BeganAt time.Time `json:"beganAt"`
	Note    string    `json:"note"`
	// Epoch is the highest epoch that was ever begun; of a blob it is absent, because the record of
	// a blob cannot go back.
	Epoch int64 `json:"epoch,omitempty"`
}

// NextEpoch returns the epoch with which a leader begins that has seen epochs up to seen, and
// records permanently that the stream has a leader: from now on a missing checkpoint was deleted.
// It is called under the lease, before the epoch is written. Errors are the store's.
//
// In Blob storage it is the next number. The records of other stores can be lost together with
// their marker, by an eviction, a restored backup or a failover without the last writes. So the
// epoch there is higher than the marker's, and at least the time in seconds since 1970, which no
// stream reaches by counting leaders.
func (c *Checkpoint) NextEpoch(ctx context.Context, seen int64) (int64, error) {
	epoch := seen + 1
	if c.expires {
		return epoch, c.markBlob(ctx)
	}
	for range maxConflicts {
		var m mark
		var tag store.Tag // empty without a marker
		object, err := c.beside.Get(ctx, c.stream+markSuffix)
		if err == nil {
			tag, err = object.Tag, json.Unmarshal(object.Data, &m)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return 0, fmt.Errorf("read the stream's marker: %w", err)
		}
		epoch = max(epoch, m.Epoch+1, time.Now().Unix())
		m = c.newMark(m.BeganAt)
		m.Epoch = epoch
		err = c.writeBeside(ctx, markSuffix, m, tag)
		switch {
		case err == nil:
			return epoch, nil
		case !errors.Is(err, ErrChanged) && !errors.Is(err, ErrNotFound):
			return 0, fmt.Errorf("mark the stream as begun: %w", err)
		}
	}
	return 0, fmt.Errorf("mark the stream as begun: %w", ErrChanged)
}

func (c *Checkpoint) newMark(began time.Time) mark {
	if began.IsZero() {
		began = time.Now().UTC()
	}
	return mark{Stream: c.stream, BeganAt: began, Note: "While this exists, a missing checkpoint is not recreated."}
}

// markBlob writes the marker once.
func (c *Checkpoint) markBlob(ctx context.Context) error {
	if c.marked.Load() {
		return nil
	}
	if err := c.writeBeside(ctx, markSuffix, c.newMark(time.Time{}), ""); err != nil && !errors.Is(err, ErrChanged) {
		return fmt.Errorf("mark the stream as begun: %w", err)
	}
	c.marked.Store(true)
	return nil
}

// Missing returns what a missing checkpoint means: nil for a new stream, [ErrGone] for a stream
// that has had a leader, [ErrChanged] if the checkpoint was created meanwhile, or the store's
// error.
func (c *Checkpoint) Missing(ctx context.Context) error {
	_, err := c.beside.Get(ctx, c.stream+markSuffix)
	switch {
	case err == nil:
		// The marker may have been written just now, by a producer that created the checkpoint
		// before.
		switch _, err := c.beside.Get(ctx, c.stream+recordSuffix); {
		case err == nil:
			return ErrChanged
		case !errors.Is(err, ErrNotFound):
			return fmt.Errorf("read the checkpoint again: %w", err)
		}
		return fmt.Errorf("%w; stop the producers, and recreate it with `producer token restore`, from a copy, or from a time before the "+
			"deletion (if positions are counted and there is no copy: use another STREAM_NAME, with new read models)", ErrGone)
	case errors.Is(err, ErrNotFound):
		return nil
	}
	return fmt.Errorf("read the stream's marker: %w", err)
}
