package apply

import (
	"errors"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Kind is what became of a change.
type Kind uint8

// The kinds.
const (
	// Pending has not been decided: a failure that may be retried came first, or a change of its aggregate that must be decided
	// before.
	Pending Kind = iota
	// Applied is committed, now.
	Applied
	// Duplicate was committed before.
	Duplicate
	// Poison can never be applied. Its aggregate is parked, where the change names one.
	Poison
	// Parked follows a poison: its aggregate is parked.
	Parked
	// Gap is not applied: its version says that a change before it is missing, which may still come.
	Gap
)

// Result is what became of one change, with the reason where it is [Poison], [Parked] or [Gap].
type Result struct {
	Kind        Kind
	Reason      string // one word
	Description string // for people; may quote the database's message
	// Stack is the stack trace of a poison that is a panic of the projection. It is for the log alone: no record holds it.
	Stack string
	// recorded says of a poison that the parking of its aggregate is committed.
	recorded bool
}

// The reasons.
const (
	ReasonParked     = "AggregateParked"   // an earlier event of the aggregate could not be applied
	ReasonVersionGap = "VersionGap"        // an earlier event of the aggregate is missing
	ReasonProjection = "ProjectionFailed"  // the projection said that the event cannot be applied, or panicked
	ReasonPromise    = "ProjectionInvalid" // the projection's writes break its promise
	ReasonRefused    = "WriteRefused"      // the database refused the write for what it is
)

// decision is what became of one change of a batch.
type decision struct {
	index  int // in the batch
	result Result
}

// record writes decisions into the results of a batch.
func record(results []Result, all []decision) {
	for _, d := range all {
		results[d.index] = d.result
	}
}

// Undecodable is the result of a message that cannot be read, from the error of [envelope.Decode].
func Undecodable(err error) Result {
	if e, ok := errors.AsType[*envelope.Error](err); ok {
		return Result{Kind: Poison, Reason: string(e.Reason), Description: e.Description}
	}
	return Result{Kind: Poison, Reason: "Undecodable", Description: err.Error()}
}

func poison(reason string, err error) Result {
	if promise, ok := errors.AsType[promiseError](err); ok {
		return Result{Kind: Poison, Reason: ReasonPromise, Description: promise.Error()}
	}
	return Result{Kind: Poison, Reason: reason, Description: err.Error(), Stack: Stack(err)}
}
