package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/memory"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Examination is what a doctor finds out about a program.
type Examination struct {
	// Declaration and Call are how long the two calls take; Call is of all events of the sample at
	// once.
	Declaration, Call time.Duration
	// Events is the size of the sample.
	Events int
	// Differs is how the answers for one event differ, the first that does; nil: none does.
	Differs error
}

// Examine reads the declaration, and asks for events in one call, in another order in another call,
// and one by one. The answers for an event must be the same.
func (c *Client) Examine(ctx context.Context, events []envelope.Change) (x Examination, err error) {
	began := time.Now()
	d, err := c.declaration(ctx)
	if err != nil {
		return x, err
	}
	x.Declaration, x.Events = time.Since(began), len(events)
	if d.Hash != c.Declared().Hash {
		return x, errDeclaration
	}
	if len(events) == 0 {
		return x, nil
	}
	began = time.Now()
	first, err := c.together(ctx, events, d)
	if err != nil {
		return x, err
	}
	x.Call = time.Since(began)
	backwards := slices.Clone(events)
	slices.Reverse(backwards)
	second, err := c.together(ctx, backwards, d)
	if err != nil {
		return x, err
	}
	for i := range events {
		alone, err := c.together(ctx, events[i:i+1], d)
		if err != nil {
			return x, err
		}
		for _, other := range []Outcome{second[len(events)-1-i], alone[0]} {
			if errors.Is(first[i].Err, projection.ErrPermanent) != errors.Is(other.Err, projection.ErrPermanent) || !memory.Same(first[i].Writes, other.Writes) {
				x.Differs = fmt.Errorf("the event of %s (%s): the program answered differently the second time: a projection may depend on nothing but the event, "+
					"so on no clock, no counter, no random number, no order of a map, and no other event of the call", events[i].Aggregate, events[i].Key())
				return x, nil
			}
		}
	}
	return x, nil
}

// together asks for events in one call.
func (c *Client) together(ctx context.Context, events []envelope.Change, d *Declaration) ([]Outcome, error) {
	body := []byte{'['}
	for i := range events {
		var err error
		if body, err = appendEvent(body, i, &events[i], d.TakesBase64); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	outcomes, failed := c.post(ctx, append(body, ']'), len(events), d.Hash)
	if failed != nil {
		return nil, failed
	}
	return outcomes, nil
}

// First reads the program's declaration, whatever its name, and uses it.
func (c *Client) First(ctx context.Context) (*Declaration, error) {
	d, err := c.declaration(ctx)
	if err == nil {
		c.Use(d)
	}
	return d, err
}
