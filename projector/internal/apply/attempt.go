package apply

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Attempt selects what of a batch to try. The zero value selects all of it.
type Attempt struct {
	// Limit is how many changes are planned; 0: all.
	Limit int
	// PerAggregate writes each aggregate in a transaction of its own, even if several could share
	// one, so that a failure concerns one aggregate.
	PerAggregate bool
	// Skip are aggregates whose changes are left pending.
	Skip map[string]bool
	// Redelivered are aggregates with a change that was delivered before: the projection may end
	// the process at it. If they are parked, it is given none of their changes.
	Redelivered []string
	// Answer, if set, returns what a projection in another process has answered for the change with
	// that index in the batch. The projection itself is not called then, and a change without an
	// answer is left pending.
	Answer func(index int) (writes []projection.Write, answered bool, err error)

	skip string // see Replay
	past Past   // see Replay
}

// Failure is a change that could not be applied now, for a reason of its own, and might be later.
type Failure struct {
	Index int // in the batch
	Err   error
}

// Code returns the database's code of an error, or 0 if it has none.
func Code(err error) int {
	if bulk, ok := errors.AsType[mongo.BulkWriteException](err); ok && len(bulk.WriteErrors) > 0 {
		return bulk.WriteErrors[0].Code
	}
	if write, ok := errors.AsType[mongo.WriteException](err); ok && len(write.WriteErrors) > 0 {
		return write.WriteErrors[0].Code
	}
	if one, ok := errors.AsType[mongo.BulkWriteError](err); ok {
		return one.Code
	}
	if command, ok := errors.AsType[mongo.CommandError](err); ok {
		return int(command.Code)
	}
	return 0
}
