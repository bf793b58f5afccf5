package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// unsaidDeliveries is the MaxDeliveryCount that is reckoned with where no setting says one and nobody may ask: the service's default.
const unsaidDeliveries = 10

// askTimeout bounds one question to the administration of Service Bus: as long as messages that are delivered again may wait for it.
const askTimeout = 10 * time.Second

// lastDelivery is the first of at most most deliveries in which an event is not applied any more, but parks its aggregate: what the
// broker dead-letters by itself would be overtaken. The last tenth, and at least one besides the last, is kept for attempts to park
// that fail.
func lastDelivery(most int) uint32 {
	return uint32(max(most-max(most/10, 1), 2)) //nolint:gosec // bounded by Validate
}

// lastDelivery is that of the entity, as far as is known by now.
func (p *Pipeline) lastDelivery() uint32 { return lastDelivery(p.MaxDeliveries()) }

// MaxDeliveries is the setting, else what the entity said, else unsaidDeliveries.
func (p *Pipeline) MaxDeliveries() int {
	if p.opts.MaxDeliveries > 0 {
		return p.opts.MaxDeliveries
	}
	if said := p.askedDeliveries.Load(); said > 0 {
		return int(said)
	}
	return unsaidDeliveries
}

// askDeliveries asks the administration for the entity's MaxDeliveryCount where no setting says it, until it is told, or learns that it
// will not be. After the first attempt nothing waits for it any more.
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
			p.opts.Logger.Info("the entity says after how many deliveries the broker takes a message out", telemetry.KeyDelivery, d.Most)
			return
		}
		if !azure.WillNotTell(err) {
			attempted()
			err = backoff.Wait(ctx)
		}
	}
	if ctx.Err() == nil {
		p.opts.Logger.Info("MAX_DELIVERIES is not set, and the entity's MaxDeliveryCount is unknown: it is taken for the service's default",
			telemetry.KeyDelivery, unsaidDeliveries, telemetry.KeyError, azure.Untold(err))
	}
}

// awaitDeliveries waits until the entity was asked, where a message is delivered again: it may be its last delivery.
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

// After MaxDeliveryCount deliveries, ten by default, the broker dead-letters a message by itself, out of order. Only a delivery
// whose lock expired counts: the network was away with messages in hand, or the projector stood still. Ten of those may pass within
// seconds, while their cause lasts longer. So after freeDeliveries each further one waits: firstPause, then twice as long each time
// up to longestPause, spread at random. Ten deliveries then take half a minute at least, whichever replicas get them.
const (
	freeDeliveries = 3
	firstPause     = 500 * time.Millisecond
	longestPause   = 30 * time.Second
)

// pause is how long a batch waits, before spreading, when one of its messages is delivered for the n-th time.
func pause(n uint32) time.Duration {
	if n <= freeDeliveries {
		return 0
	}
	return min(firstPause<<min(n-freeDeliveries-1, 10), longestPause)
}

// atRisk says whether one of the messages is to park its aggregate.
func (p *Pipeline) atRisk(messages []*azservicebus.ReceivedMessage) bool {
	last := p.lastDelivery()
	return slices.ContainsFunc(messages, func(m *azservicebus.ReceivedMessage) bool { return m.DeliveryCount >= last })
}

// pace delays messages that were delivered often, while their session is kept without a worker, and its lock renewed. After an error the session
// must be released: its messages are then delivered again, and no delivery count rises.
func (p *Pipeline) pace(receiving context.Context, session *sessions.Session, b *batch, messages []*azservicebus.ReceivedMessage) error {
	var deliveries uint32
	for _, m := range messages {
		deliveries = max(deliveries, m.DeliveryCount)
	}
	longest := pause(deliveries)
	if longest == 0 {
		return nil
	}
	wait := longest/2 + rand.N(longest/2)
	p.opts.Logger.Warn("messages are delivered again and again, because their session's lock was lost each time: waiting before this delivery",
		telemetry.KeySession, session.ID(), telemetry.KeyDelivery, deliveries, telemetry.KeyWait, wait.Milliseconds())
	if err := session.Aside(receiving, b.bytes(), func(bool) { _ = retry.Sleep(receiving, wait) }); err != nil {
		return fmt.Errorf("stop with messages in hand: %w", err)
	}
	return nil
}
