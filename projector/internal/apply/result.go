package apply

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Kind is the kind of an outcome of a change.
type Kind uint8

// The kinds.
const (
	// Pending has not been decided: a failure that may be retried came first, or a change of its
	// aggregate that must be decided before.
	Pending Kind = iota
	// Applied is committed, now.
	Applied
	// Duplicate was committed before.
	Duplicate
	// Poison can never be applied. Its aggregate is parked, if the change names one.
	Poison
	// Parked follows a poison: its aggregate is parked.
	Parked
	// Gap is not applied: by its version, a change before it is missing, which may still come.
	Gap
)

// Result is the outcome of one change, with the reason if it is [Poison], [Parked] or [Gap].
type Result struct {
	Kind        Kind
	Reason      string // one word
	Description string // for people; may quote the database's message
	// Stack is the stack trace of a poison that is a panic of the projection. It is only logged,
	// and in no record.
	Stack string
	// Recorded is set on a poison once the parking of its aggregate is committed, or if it names
	// none.
	Recorded bool
	// Idle is set on an applied change if nothing was written at this attempt: the change has no
	// effect, or was written before. It does not show that the database accepts writes.
	Idle bool
}

// The reasons.
const (
	ReasonParked      = "AggregateParked"   // an earlier event of the aggregate could not be applied
	ReasonVersionGap  = "VersionGap"        // an earlier event of the aggregate is missing
	ReasonProjection  = "ProjectionFailed"  // the projection returned an error for the event, or panicked
	ReasonPromise     = "ProjectionInvalid" // the projection's writes break its promise
	ReasonRefused     = "WriteRefused"      // the database refused the write for its content
	ReasonDeliveries  = "DeliveriesUsedUp"  // the broker would soon dead-letter the event, and later ones would overtake it
	ReasonUndecided   = "Undecided"         // the event failed for UNDECIDED_AFTER while others of the same database were applied
	ReasonEnded       = "ProcessEnded"      // processes ended while the projection had the event
	ReasonOvertaken   = "Overtaken"         // the broker dead-lettered the event, and later ones were applied
	ReasonHistoryLost = "HistoryLost"       // a row of a snapshot may contain what was applied already
	ReasonOperator    = "ParkedByOperator"  // an operator parked the aggregate, without an event
	ReasonBuild       = "BuildFailed"       // the aggregate's state could not be built from the source; no event in the queue is the reason
)

// Reasons returns all reasons with which the projector dead-letters messages: not Overtaken, since
// the broker dead-lettered that message for a reason of its own, and not ParkedByOperator, which is
// of an aggregate only.
func Reasons() []string {
	return []string{
		ReasonParked, ReasonVersionGap, ReasonProjection, ReasonPromise, ReasonRefused, ReasonDeliveries, ReasonUndecided, ReasonEnded,
		ReasonHistoryLost,
		string(envelope.ReasonMissingProperty), string(envelope.ReasonInvalidProperty), string(envelope.ReasonUnknownContentType),
		string(envelope.ReasonUndecodableBody), string(envelope.ReasonClaimMissing), string(envelope.ReasonClaimCorrupt),
	}
}

// decision is the outcome of one change of a batch.
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

// Undecodable returns the result of a message that cannot be read, from the error of
// [envelope.Decode].
func Undecodable(err error) Result {
	if e, ok := errors.AsType[*envelope.Error](err); ok {
		return Result{Kind: Poison, Reason: string(e.Reason), Description: e.Description}
	}
	return Result{Kind: Poison, Reason: "Undecodable", Description: err.Error()}
}

// DeliveriesExhausted returns the result of an event that was delivered n times of at most most. If
// its lock is lost once or twice more, the broker dead-letters it, and the projector that applies
// the next event cannot know that. So the aggregate is parked before.
func DeliveriesExhausted(n uint32, most int) Result {
	return Result{Kind: Poison, Reason: ReasonDeliveries, Description: fmt.Sprintf("the event was delivered %d times, and the broker takes it out "+
		"of its order after %d: a projector stopped, or lost its lock, each time that it had the event in hand. Find out why, then replay", n, most)}
}

// ProcessEnded returns the result of an event that is not given to the projection again.
func ProcessEnded() Result {
	return Result{Kind: Poison, Reason: ReasonEnded, Description: "processes of the projector ended each time that the projection had this event, and " +
		"no other one: it may recurse without end, or take more memory than there is. Correct the projection before a replay, which ends in the " +
		"same way otherwise"}
}

// Undecided returns the result of an event that failed for so long while others of the same
// database were applied.
func Undecided(since time.Duration, err error) Result {
	return Result{Kind: Poison, Reason: ReasonUndecided, Description: fmt.Sprintf(
		"for %s the event could not be applied, while events of other aggregates were: %v", since.Round(time.Second), err)}
}

func poison(reason string, err error) Result {
	if refused, ok := errors.AsType[reasoned](err); ok {
		return Result{Kind: Poison, Reason: refused.ParkReason(), Description: refused.Error()}
	}
	if promise, ok := errors.AsType[promiseError](err); ok {
		return Result{Kind: Poison, Reason: ReasonPromise, Description: promise.Error()}
	}
	return Result{Kind: Poison, Reason: reason, Description: err.Error(), Stack: Stack(err)}
}

// reasoned is an error that names the reason with which its aggregate is parked.
type reasoned interface {
	error
	ParkReason() string
}
