package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// program is the projection of a program.
type program struct{ client *Client }

// oneDocument is the projection of a program that promises one document for each aggregate.
type oneDocument struct{ program }

var (
	_ projection.Stored      = program{}
	_ projection.PostImages  = program{}
	_ projection.OneDocument = oneDocument{}
)

// Projection returns the projection of the client's program, as its declaration describes it.
func (c *Client) Projection() projection.Projection {
	if c.Declared().OneDocument {
		return oneDocument{program{c}}
	}
	return program{c}
}

// Declared returns the projection of a declaration, without a program to call.
func Declared(d *Declaration) projection.Projection {
	c := New(Options{})
	c.Use(d)
	return c.Projection()
}

// Name implements [projection.Projection].
func (p program) Name() string { return p.client.Declared().Name }

// Collections implements [projection.Stored].
func (p program) Collections() []projection.Collection { return p.client.Declared().Collections }

// NeedsPostImages implements [projection.PostImages].
func (p program) NeedsPostImages() bool { return p.client.Declared().NeedsPostImages }

// Collection implements [projection.OneDocument].
func (p oneDocument) Collection() string { return p.client.Declared().Collections[0].Name }

// ErrProgram is a failure of the program, and not of the event that it was asked for.
var ErrProgram = errors.New("the projection's program does not answer as it must")

// commandCalls is how many calls a command makes at once.
const commandCalls = 4

// commandTries is how often a command asks for an event before the failure counts.
const commandTries = 6

// Project implements [projection.Projection] by a call for one event, for the commands: a projector
// that runs asks for the events of a session together. Errors: ErrProgram if the program cannot be
// called, or if it no longer answers for the last event that it answered for; any other failure is
// the event's.
func (p program) Project(e projection.Event) ([]projection.Write, error) {
	backoff := retry.Backoff{Max: 2 * time.Second}
	for {
		outcome, failed := p.client.one(&e.Change)
		switch {
		case failed == nil:
			return outcome.Writes, outcome.Err
		case backoff.Attempts() < commandTries:
			time.Sleep(max(backoff.Next(), failed.wait))
		case failed.kind == away || failed.kind == redeclared || !p.client.works():
			return nil, fmt.Errorf("%w: %w", ErrProgram, failed)
		default:
			return nil, failed
		}
	}
}

// one asks for one event.
func (c *Client) one(change *envelope.Change) (Outcome, *callError) {
	d := c.Declared()
	body, err := appendEvent([]byte{'['}, 0, change, d.TakesBase64)
	if err != nil {
		return Outcome{Err: projection.Permanent(err)}, nil
	}
	_ = c.commands.Acquire(context.Background(), 1) // fails only if the context ends
	defer c.commands.Release(1)
	ctx, cancel := context.WithTimeout(context.Background(), c.o.Timeout)
	defer cancel()
	outcomes, failed := c.post(ctx, append(body, ']'), 1, d.Hash)
	if failed != nil {
		return Outcome{}, failed
	}
	c.mu.Lock()
	c.passed = change
	c.mu.Unlock()
	return outcomes[0], nil
}

// works reports whether the program still answers for the last event that a command had its answer
// for.
func (c *Client) works() bool {
	c.mu.Lock()
	passed := c.passed
	c.mu.Unlock()
	if passed == nil {
		return false
	}
	_, failed := c.one(passed)
	return failed == nil
}
