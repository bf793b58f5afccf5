package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// failureSuffix is the suffix of the object beside a checkpoint that holds the stream's last
// failure. No stream's own object can have such a name: those end in .json.
//
// It is a separate object because anything else could do harm. Writing the checkpoint would change
// its tag, by which a leader knows that no other client wrote, and would need the lease, which a
// failing replica may not have or may just have released. Only the operator's commands read this
// object. The replica that fails last writes it, whatever it replaces.
const failureSuffix = ".json.failure"

// Failure describes why a replica stopped publishing a stream, for operators.
type Failure struct {
	Stream   string `json:"stream"`
	Instance string `json:"instance"`
	// Led reports whether the replica led when it failed, in this epoch; otherwise the epoch is
	// that of the record it read.
	Led   bool  `json:"led"`
	Epoch int64 `json:"epoch"`
	// StepDown reports whether the replica gave up the leadership and continues as a standby.
	StepDown bool `json:"stepDown,omitempty"`
	// Position is how far the stream was published at that time.
	Position string `json:"position"`
	// Error describes what failed, with which event, and what to do.
	Error string `json:"error"`
	// At is the replica's wall clock.
	At time.Time `json:"at"`
}

// Resolved reports whether the stream has continued since: a leader has moved it past the place
// where it failed. For a failure of a replica that did not lead, or that only stepped down, it is
// enough that there is a leader.
func (f Failure) Resolved(now Snapshot) bool {
	record := now.Record
	switch {
	case record.Progress.Position > f.Position:
		return true
	case f.Led && !f.StepDown:
		return false
	}
	return now.Leased && (record.Epoch > f.Epoch || !f.Led)
}

// WriteFailure writes the stream's last failure beside its checkpoint. Errors are the store's;
// nothing depends on it.
func (c *Checkpoint) WriteFailure(ctx context.Context, f Failure) error {
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("write the last failure: %w", err)
	}
	for range maxConflicts {
		if _, err = c.beside.Create(ctx, c.stream+failureSuffix, text); !errors.Is(err, ErrChanged) {
			break
		}
		before, missing := c.beside.Get(ctx, c.stream+failureSuffix)
		if err = missing; err == nil {
			_, err = c.beside.Put(ctx, c.stream+failureSuffix, text, before.Tag)
		}
		if !errors.Is(err, ErrChanged) && !errors.Is(err, ErrNotFound) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("keep the last failure: %w", err)
	}
	return nil
}

// LastFailure reads the failure that WriteFailure wrote. It returns nil without one. Errors
// are the store's.
func (c *Checkpoint) LastFailure(ctx context.Context) (*Failure, error) {
	object, err := c.beside.Get(ctx, c.stream+failureSuffix)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	var f Failure
	if err == nil {
		err = json.Unmarshal(object.Data, &f)
	}
	if err != nil {
		return nil, fmt.Errorf("read the last failure: %w", err)
	}
	return &f, nil
}
