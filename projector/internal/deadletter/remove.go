package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

const (
	// inFlight bounds the settlements that are in flight at once.
	inFlight = 32
	// quiet is how long to wait for a message that another receiver may have locked.
	quiet = 3 * time.Second
)

// remove removes copies of packed events, and completes messages of the dead-letter queue by their
// sequence numbers; it returns how many. A queue delivers its messages in order, so those before
// them are locked meanwhile, and abandoned at the end.
//
// It may leave some: those that another receiver has locked, and those behind so many others that
// the locks of the first ones expire. They do no harm: their effects are committed, and the guard
// recognises them.
func (p *Replayer) remove(ctx context.Context, all map[letterKey]bool) (removed int, err error) {
	wanted := make(map[int64]bool)
	var asides []string
	for key := range all {
		if key.aside != "" {
			asides = append(asides, key.aside)
		} else {
			wanted[key.sequence] = true
		}
	}
	copies, err := p.Applier.RemoveAsides(ctx, asides)
	if err != nil || len(wanted) == 0 {
		return copies, err
	}
	receiver, err := p.Entity.DeadLetters(p.Client)
	if err != nil {
		return 0, err
	}
	left := len(wanted)
	seen := make(map[int64]bool)
	var passed [][16]byte // the locks of other messages; their content is not kept
	var completing errgroup.Group
	completing.SetLimit(inFlight)
	var done atomic.Int64
	for left > 0 && ctx.Err() == nil {
		messages, received := p.receive(ctx, receiver)
		if received != nil {
			err = received
		}
		again := false
		for _, m := range messages {
			again = again || m.SequenceNumber == nil || seen[*m.SequenceNumber]
			if !again {
				seen[*m.SequenceNumber] = true
			}
			if again || !wanted[*m.SequenceNumber] {
				passed = append(passed, m.LockToken)
				continue
			}
			left--
			completing.Go(func() error {
				settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.SettleTimeout)
				defer cancel()
				if err := receiver.CompleteMessage(settling, m, nil); err != nil {
					return fmt.Errorf("remove message %s from the dead-letter queue: %w", m.MessageID, err)
				}
				done.Add(1)
				return nil
			})
		}
		if again || len(messages) == 0 {
			break
		}
	}
	err = errors.Join(err, completing.Wait(), ctx.Err())
	// This receiver still has credit: messages unlocked now would be delivered to it again, and
	// stay locked.
	p.closeDeadLetters(ctx, receiver)
	p.giveBack(ctx, passed)
	return copies + int(done.Load()), err
}

// receive returns the next messages, or none if none arrive for a while.
func (p *Replayer) receive(ctx context.Context, receiver *azservicebus.Receiver) ([]*azservicebus.ReceivedMessage, error) {
	waiting, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	messages, err := receiver.ReceiveMessages(waiting, page, nil)
	if err != nil && waiting.Err() == nil {
		return messages, fmt.Errorf("receive from the dead-letter queue: %w", err)
	}
	return messages, nil
}

// giveBack unlocks messages. If that fails for one, its lock expires.
func (p *Replayer) giveBack(ctx context.Context, tokens [][16]byte) {
	receiver, err := p.Entity.DeadLetters(p.Client)
	if err != nil {
		return
	}
	defer p.closeDeadLetters(ctx, receiver)
	var group errgroup.Group
	group.SetLimit(inFlight)
	for _, token := range tokens {
		group.Go(func() error {
			settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.SettleTimeout)
			defer cancel()
			return receiver.AbandonMessage(settling, &azservicebus.ReceivedMessage{LockToken: token}, nil)
		})
	}
	_ = group.Wait()
}
