package apply

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Attempt says what of a batch to try. The zero value tries all of it.
type Attempt struct {
	// Limit is how many changes are planned; 0: all.
	Limit int
	// PerAggregate writes each aggregate by itself, where several could be written in one transaction: what fails then is that aggregate's.
	PerAggregate bool
	// Skip are aggregates whose changes are left pending.
	Skip map[string]bool
}

func (t Attempt) full(planned int) bool { return t.Limit > 0 && planned >= t.Limit }

// Failure is a change that could not be applied now, for a reason of its own, and might be later.
type Failure struct {
	Index int // in the batch
	Err   error
}

// Code is the database's code for an error; 0 where it has none.
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
