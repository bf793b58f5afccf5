package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// defaultMaxDeliveries is the MaxDeliveryCount that is assumed if it is not set and cannot be asked
// for: the service's default.
const defaultMaxDeliveries = 10

// askTimeout bounds one question to the administration of Service Bus: as long as messages that are
// delivered again may wait for it.
const askTimeout = 10 * time.Second

// parkAtDelivery returns the delivery count from which an event parks its aggregate instead of
// being applied: later events would overtake a message that the broker dead-letters. The last tenth
// of the deliveries, and at least one besides the last, is kept for attempts to park that fail.
func parkAtDelivery(most int) uint32 {
	return uint32(max(most-max(most/10, 1), 2)) //nolint:gosec // bounded by Validate
}

// Only a delivery whose lock expired counts: the network was unavailable with messages in hand, or
// the projector stood still. MaxDeliveryCount of those may pass within seconds, while their cause
// lasts longer. So after freeDeliveries the messages of each further delivery wait before they are
// settled: firstPause, then twice as long each time up to longestPause. Ten deliveries then take
// half a minute at least, whichever replicas receive them.
const (
	freeDeliveries = 3
	firstPause     = 500 * time.Millisecond
	longestPause   = 30 * time.Second
)

// redeliveryPause returns how long the messages of a batch wait at most, before they are settled,
// when one of them is delivered for the n-th time.
func redeliveryPause(n uint32) time.Duration {
	if n <= freeDeliveries {
		return 0
	}
	return min(firstPause<<min(n-freeDeliveries-1, 10), longestPause)
}

// MaxDeliveries returns the setting, or the entity's MaxDeliveryCount if it is known, or
// defaultMaxDeliveries.
func (p *Pipeline) MaxDeliveries() int {
	if p.opts.MaxDeliveries > 0 {
		return p.opts.MaxDeliveries
	}
	if asked := p.askedDeliveries.Load(); asked > 0 {
		return int(asked)
	}
	return defaultMaxDeliveries
}

// askDeliveries asks the administration for the entity's MaxDeliveryCount, if it is not set, until
// it answers or refuses. After the first attempt nothing waits for it any more.
func (p *Pipeline) askDeliveries(ctx context.Context) {
	attempted := sync.OnceFunc(func() { close(p.asked) })
	defer attempted()
	if p.opts.MaxDeliveries > 0 {
		return
	}
	client, err := p.opts.Administer()
	backoff := retry.Backoff{Initial: time.Second, Max: 5 * time.Minute}
	for err == nil {
		var d azure.Delivery
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		d, err = p.opts.Entity.Delivery(asking, client)
		cancel()
		if err == nil {
			p.askedDeliveries.Store(int32(d.Most))
			p.opts.Logger.Info("the entity's MaxDeliveryCount is known", telemetry.KeyDelivery, d.Most)
			return
		}
		if !azure.IsRefusal(err) {
			attempted()
			err = backoff.Wait(ctx)
		}
	}
	if ctx.Err() == nil {
		p.opts.Logger.Info("MAX_DELIVERIES is not set, and the entity's MaxDeliveryCount is unknown: assuming the service's default",
			telemetry.KeyDelivery, defaultMaxDeliveries, telemetry.KeyError, azure.WhyUnanswered(err))
	}
}

// awaitDeliveries waits until the entity was asked, if a message is delivered again: it may be its
// last delivery.
func (p *Pipeline) awaitDeliveries(receiving context.Context, messages []*azservicebus.ReceivedMessage) error {
	if !slices.ContainsFunc(messages, func(m *azservicebus.ReceivedMessage) bool { return m.DeliveryCount > 1 }) {
		return nil
	}
	select {
	case <-p.asked:
		return nil
	case <-receiving.Done():
		return fmt.Errorf("stop with messages in hand: %w", context.Cause(receiving))
	}
}
