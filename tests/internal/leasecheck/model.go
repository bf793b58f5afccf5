// Package leasecheck decides whether one blob that does one thing at a time can explain what the
// clients of a leased blob observed, that is, whether the history is linearizable. It uses
// porcupine.
//
// A linearizable history means that two clients never hold the lease at once, that no client writes
// without the lease while another one holds it, that a condition on the ETag holds at the moment of
// the write, and that a reader sees the last write. The outcome of a request without an answer is
// open: it may have taken effect at any time since, or never.
//
// Time is part of the model, since a lease expires: a lease may have expired one duration after the
// last acquisition or renewal was sent, and has certainly expired one duration after its answer
// arrived. All clients of a test share one clock.
//
// The model covers breaks with period 0 and leases of a fixed duration. It does not cover changes
// of a lease's id, deletes and metadata.
package leasecheck

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

var (
	// ErrNotLinearizable is a history that no single blob explains.
	ErrNotLinearizable = errors.New("history of the leased blob is not linearizable")
	// ErrUndecided is a history that could not be decided in the time given.
	ErrUndecided = errors.New("history of the leased blob could not be decided in time")
)

// Kind is the kind of a request.
type Kind string

// The kinds.
const (
	Read    Kind = "read"
	Write   Kind = "write"
	Acquire Kind = "acquire"
	Renew   Kind = "renew"
	Release Kind = "release"
	Break   Kind = "break"
)

// Outcome is what a client knows of its request.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused" // it had no effect
	Unknown Outcome = "unknown" // there was no answer, or an inconclusive one
)

// Operation is one request and what its client knows of it. Times are durations since the start of
// the recording.
type Operation struct {
	Client           int
	Kind             Kind
	LeaseID          string
	IfMatch          string        // an ETag; empty for none
	IfNoneMatch      bool          // only if the blob does not exist
	Value            string        // written, or read
	Duration         time.Duration // of a lease that is acquired
	Called, Returned time.Duration
	Outcome          Outcome
	ETag             string // of what was written or read
	Leased           bool   // the answer reports that the blob is leased
}

// end is the operation after which a request without an answer need no longer take effect.
const end Kind = "end"

const forever = time.Duration(math.MaxInt64)

// blob is the state of the model.
type blob struct {
	exists bool
	etag   string // begins with "?" until a client has received it
	value  string
	holder string // the lease's id; stays after it has expired, until another client acquires it or the blob is written
	broken bool
	// mayEnd and mustEnd are the times from which the lease may, and must, have expired; a renewal
	// needs duration.
	mayEnd, mustEnd, duration time.Duration
	over                      bool
}

// held reports whether the lease may, and whether it must, be held while an operation takes effect.
func (b blob) held(o Operation) (may, must bool) {
	if b.holder == "" || b.broken {
		return false, false
	}
	return o.Called <= b.mustEnd, o.Returned < b.mayEnd
}

func (b blob) matches(o Operation) bool { return o.IfMatch == "" || (b.exists && b.etag == o.IfMatch) }

// take returns the state after an operation that succeeded; ok is false if it cannot succeed.
func (b blob) take(o Operation) (after blob, ok bool) {
	if !b.matches(o) {
		return b, false
	}
	may, must := b.held(o)
	switch o.Kind {
	case Read:
		if strings.HasPrefix(b.etag, "?") {
			b.etag = o.ETag // of a write without an answer
		}
		return b, b.exists && b.etag == o.ETag && b.value == o.Value && (o.Leased && may || !o.Leased && !must)
	case Write:
		switch {
		case o.IfNoneMatch && b.exists, o.LeaseID == "" && must, o.LeaseID != "" && (!may || b.holder != o.LeaseID):
			return b, false
		case o.LeaseID == "":
			b.holder, b.broken = "", false
		}
		b.exists, b.value, b.etag = true, o.Value, o.ETag
		return b, true
	case Acquire:
		if !b.exists || (must && b.holder != o.LeaseID) {
			return b, false
		}
		b.holder, b.broken, b.duration = o.LeaseID, false, o.Duration
		b.mayEnd, b.mustEnd = o.Called+o.Duration, later(o.Returned, o.Duration)
		return b, true
	case Renew:
		if b.broken || b.holder != o.LeaseID {
			return b, false
		}
		b.mayEnd, b.mustEnd = o.Called+b.duration, later(o.Returned, b.duration)
		return b, true
	case Release:
		if b.holder != o.LeaseID {
			return b, false
		}
		b.holder, b.broken = "", false
		return b, true
	case Break:
		if !b.exists || b.holder == "" {
			return b, false
		}
		b.broken = true
		return b, true
	case end: // handled by step
	}
	return b, false
}

func later(t, d time.Duration) time.Duration {
	if t == forever {
		return forever
	}
	return t + d
}

// refuses reports whether the blob may refuse an operation.
func (b blob) refuses(o Operation) bool {
	if !b.exists {
		return true // nor does the container have to exist
	}
	may, must := b.held(o)
	switch {
	case !b.matches(o):
		return true
	case o.Kind == Read:
		return false
	case o.Kind == Write && o.IfNoneMatch:
		return true
	case o.Kind == Write && o.LeaseID == "":
		return may
	case o.Kind == Acquire:
		return may && b.holder != o.LeaseID
	case o.Kind == Break:
		return b.holder == ""
	case o.Kind == Renew:
		return b.holder != o.LeaseID || b.broken || !must
	}
	return b.holder != o.LeaseID || !must
}

func step(state, input, _ any) (bool, any) {
	b, o := state.(blob), input.(Operation)
	switch {
	case o.Kind == end:
		b.over = true
		return true, b
	case o.Outcome == Refused:
		return b.refuses(o), b
	case o.Outcome == Unknown && b.over:
		return true, b // it never took effect
	}
	after, ok := b.take(o)
	return ok, after
}

// Check decides about a history, within a time. Errors: [ErrNotLinearizable], [ErrUndecided].
func Check(history []Operation, patience time.Duration) error {
	var operations []porcupine.Operation
	var last time.Duration
	for n, o := range history {
		if o.Outcome == Unknown {
			if o.Kind == Read {
				continue // it changed nothing and reports nothing
			}
			o.Returned, o.ETag = forever, fmt.Sprintf("?%d", n)
		} else {
			last = max(last, o.Returned)
		}
		last = max(last, o.Called)
		operations = append(operations, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Called), Return: int64(o.Returned)})
	}
	operations = append(operations, porcupine.Operation{Input: Operation{Kind: end}, Call: int64(last + 1), Return: int64(last + 2)})
	model := porcupine.Model{
		Init:              func() any { return blob{} },
		Step:              step,
		DescribeOperation: func(input, _ any) string { return input.(Operation).String() },
	}
	result, info := porcupine.CheckOperationsVerbose(model, operations, patience)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w: %d operations in %s", ErrUndecided, len(operations), patience)
	case porcupine.Illegal:
	}
	return fmt.Errorf("%w: %s", ErrNotLinearizable, stuckAt(operations, info))
}

// stuckAt returns the first operations that the longest explanation leaves out.
func stuckAt(operations []porcupine.Operation, info porcupine.LinearizationInfo) string {
	explained := 0
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, some := range partition {
			explained = max(explained, len(some))
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d of %d operations can be explained; around the first that cannot:", explained, len(operations))
	for n := max(0, explained-4); n < min(len(operations), explained+4); n++ {
		fmt.Fprintf(&text, "\n    %s", operations[n].Input)
	}
	return text.String()
}

func (o Operation) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%.6fs to %.6fs: client %d: %s", o.Called.Seconds(), o.Returned.Seconds(), o.Client, o.Kind)
	for _, part := range []struct{ name, value string }{
		{"lease", short(o.LeaseID)}, {"if match", o.IfMatch}, {"value", short(o.Value)}, {"etag", o.ETag},
	} {
		if part.value != "" {
			text.WriteString(", " + part.name + " " + part.value)
		}
	}
	return text.String() + ": " + string(o.Outcome)
}

func short(s string) string { return s[:min(8, len(s))] }
