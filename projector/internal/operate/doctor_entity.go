package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/checkup"
)

// examineEntity asks the administration of Service Bus when the broker takes messages out by itself. That needs the right to manage, which
// the projector does without: where it is missing, that is said and is no problem.
func (p *Projector) examineEntity(ctx context.Context, found *checkup.Findings) {
	const deliveries, expiry = "deliveries", "expiry"
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	most, keeps, err := p.describe(ctx)
	if err != nil {
		found.OK(deliveries, "MAX_DELIVERIES is %d, and what the entity has is unknown: %s", p.MaxDeliveries, azure.Untold(err))
		found.OK(expiry, "unknown: %s", azure.Untold(err))
		return
	}
	switch {
	case most < p.MaxDeliveries:
		found.Problem(deliveries, fmt.Sprintf("set MAX_DELIVERIES=%d, or raise the entity's MaxDeliveryCount", most),
			"the broker dead-letters a message after %d, and MAX_DELIVERIES is %d: a message that fails is overtaken by later ones of its aggregate", most, p.MaxDeliveries)
	case most > p.MaxDeliveries:
		found.OK(deliveries, "an aggregate is parked before a message has had %d (MAX_DELIVERIES); the entity allows %d", p.MaxDeliveries, most)
	default:
		found.OK(deliveries, "an aggregate is parked before a message has had %d, after which the broker dead-letters it by itself", most)
	}
	if !keeps {
		found.Problem(expiry, "switch on dead-lettering on message expiration",
			"%q drops messages that have expired: an event that waits for longer than its time to live is lost", p.Entity.String())
		return
	}
	found.OK(expiry, "messages that have expired are dead-lettered, not dropped")
}

// describe gives after how many deliveries the entity dead-letters a message, and whether it keeps those that have expired.
func (p *Projector) describe(ctx context.Context) (deliveries int, keeps bool, err error) {
	client, err := p.Administer()
	if err != nil {
		return 0, false, err
	}
	var most *int32
	var dead *bool
	if p.Entity.Queue != "" {
		queue, err := client.GetQueue(ctx, p.Entity.Queue, nil)
		if err != nil {
			return 0, false, err
		}
		if queue != nil {
			most, dead = queue.MaxDeliveryCount, queue.DeadLetteringOnMessageExpiration
		}
	} else {
		subscription, err := client.GetSubscription(ctx, p.Entity.Topic, p.Entity.Subscription, nil)
		if err != nil {
			return 0, false, err
		}
		if subscription != nil {
			most, dead = subscription.MaxDeliveryCount, subscription.DeadLetteringOnMessageExpiration
		}
	}
	if most == nil {
		return 0, false, errors.New("it does not know the entity")
	}
	return int(*most), dead != nil && *dead, nil
}
