package settle

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// Receiver is what settles: an [azservicebus.SessionReceiver].
type Receiver interface {
	CompleteMessage(ctx context.Context, m *azservicebus.ReceivedMessage, o *azservicebus.CompleteMessageOptions) error
	DeadLetterMessage(ctx context.Context, m *azservicebus.ReceivedMessage, o *azservicebus.DeadLetterOptions) error
}

var _ Receiver = (*azservicebus.SessionReceiver)(nil)

// inFlight bounds the settlements of one session that are under way at once: each costs a round trip, and there is no
// batch form.
const inFlight = 32

// Send tells the broker the choices, as many at once as inFlight, and waits for its answers. Each settlement gets timeout: the
// SDK would try for 40 seconds by itself, on its own terms. The first failure is returned, after all have ended.
//
// It finishes what it began even when ctx ends meanwhile, so that what is applied is not delivered again for nothing.
func Send(ctx context.Context, r Receiver, timeout time.Duration, messages []*azservicebus.ReceivedMessage, choices []Choice) error {
	ctx = context.WithoutCancel(ctx)
	if len(messages) == 1 {
		return send(ctx, r, timeout, messages[0], choices[0])
	}
	var group errgroup.Group
	group.SetLimit(inFlight)
	for i, m := range messages {
		if choices[i].Action != Leave {
			group.Go(func() error { return send(ctx, r, timeout, m, choices[i]) })
		}
	}
	return group.Wait()
}

func send(ctx context.Context, r Receiver, timeout time.Duration, m *azservicebus.ReceivedMessage, c Choice) error {
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
