package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/projector/internal/sessions"
)

// inFlight bounds the settlements of one session that are under way at once: each costs a round trip, and there is no
// batch form.
const inFlight = 128

// Send tells the broker the choices and waits for its answers: completions as many at once as inFlight, dead letters one
// after the other, so that they lie in the dead-letter queue in their order. Each settlement gets timeout: the SDK would
// try for 40 seconds by itself, on its own terms. The error joins a failure of either kind, after all have ended.
//
// Completions finish even when ctx ends meanwhile, so that what is applied is not delivered again for nothing. No dead letter begins after that:
// its aggregate is parked, so it is set aside when it is delivered again.
func Send(ctx context.Context, r sessions.Settler, timeout time.Duration, messages []*azservicebus.ReceivedMessage, choices []Choice) error {
	stopping := ctx
	ctx = context.WithoutCancel(ctx)
	var group errgroup.Group
	group.SetLimit(inFlight)
	var dead []int
	for i, m := range messages {
		switch choices[i].Action {
		case Complete:
			group.Go(func() error { return send(ctx, r, timeout, m, choices[i]) })
		case DeadLetter:
			dead = append(dead, i)
		case Leave:
		}
	}
	var first error
	for _, i := range dead {
		if stopping.Err() != nil {
			first = fmt.Errorf("dead-letter message: %w", context.Cause(stopping))
			break
		}
		if first = send(ctx, r, timeout, messages[i], choices[i]); first != nil {
			break // what follows would come out of order
		}
	}
	return errors.Join(first, group.Wait())
}

func send(ctx context.Context, r sessions.Settler, timeout time.Duration, m *azservicebus.ReceivedMessage, c Choice) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch c.Action {
	case Complete:
		if err := r.CompleteMessage(ctx, m, nil); err != nil {
			return fmt.Errorf("complete message: %w", err)
		}
	case DeadLetter:
		options := &azservicebus.DeadLetterOptions{Reason: &c.Reason, ErrorDescription: &c.Description}
		if err := r.DeadLetterMessage(ctx, m, options); err != nil {
			return fmt.Errorf("dead-letter message: %w", err)
		}
	case Leave:
	}
	return nil
}
