package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ask asks the projection's program for the writes of the changes that the next attempt tries,
// unless it has answered. It has a time-out of its own, so that APPLY_TIMEOUT is for MongoDB alone.
// The error is why the batch waits.
func (h *handler) ask(ctx context.Context, b *batch) error {
	if h.opts.Remote == nil {
		return nil
	}
	var asked []int
	var events []*envelope.Change
	for i := range b.changes {
		c := &b.changes[i]
		if b.results[i].Kind == apply.Pending && c.Claim == nil && !b.skip[c.Aggregate] && b.answers[b.messages[i]] == nil {
			asked, events = append(asked, i), append(events, c)
		}
	}
	if len(events) == 0 {
		return nil
	}
	if b.answers == nil {
		b.answers = make(map[*azservicebus.ReceivedMessage]*remote.Outcome, len(events))
	}
	outcomes, err := h.opts.Remote.Ask(ctx, events)
	for n, i := range asked {
		if outcomes[n] != nil {
			b.answers[b.messages[i]] = outcomes[n]
		}
	}
	return err
}

var errNotAsked = errors.New("the projection's program was not asked for the event yet")

// attempt selects what to try, with the answers of a program. A failure is returned once: the next
// attempt asks again.
func (h *handler) attempt(b *batch) apply.Attempt {
	a := b.attempt()
	if h.opts.Remote == nil {
		return a
	}
	a.Answer = func(i int) ([]projection.Write, error) {
		answer := b.answers[b.messages[i]]
		switch {
		case answer == nil:
			return nil, errNotAsked
		case answer.Err != nil && !errors.Is(answer.Err, projection.ErrPermanent):
			delete(b.answers, b.messages[i])
		}
		return projection.Renamed(h.opts.Projection, answer.Writes), answer.Err
	}
	return a
}

// askedToWait returns how long a program asks to wait.
func askedToWait(err error) time.Duration {
	if away, ok := errors.AsType[*remote.Away](err); ok {
		return away.Wait
	}
	return 0
}
