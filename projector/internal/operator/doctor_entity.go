package operator

import (
	"context"
	"fmt"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/checkup"
)

// examineEntity asks the administration of Service Bus when the broker removes messages. That needs
// the right to manage, which the projector does not need: without it, the finding is that this is
// unknown, which is not a problem.
func (p *Projector) examineEntity(ctx context.Context, found *checkup.Findings) {
	const deliveries, expiry = "deliveries", "expiry"
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	client, err := p.Administer()
	var d azure.Delivery
	if err == nil {
		d, err = p.Entity.Delivery(ctx, client)
	}
	if err != nil {
		set := fmt.Sprintf("MAX_DELIVERIES is %d", p.MaxDeliveries)
		if p.Asks {
			set = fmt.Sprintf("MAX_DELIVERIES is not set and taken for %d", p.MaxDeliveries)
		}
		found.OK(deliveries, "%s, and what the entity has is unknown: %s", set, azure.WhyUnanswered(err))
		found.OK(expiry, "unknown: %s", azure.WhyUnanswered(err))
		return
	}
	switch most := d.Most; {
	case p.Asks:
		found.OK(deliveries, "an aggregate is parked before a message has had %d, the value of the entity, which the projector asks for (MAX_DELIVERIES is not set)", most)
	case most < p.MaxDeliveries:
		found.Problem(deliveries, fmt.Sprintf("set MAX_DELIVERIES=%d, or raise the entity's MaxDeliveryCount", most),
			"the broker dead-letters a message after %d, and MAX_DELIVERIES is %d: a message that fails is overtaken by later ones of its aggregate", most, p.MaxDeliveries)
	case most > p.MaxDeliveries:
		found.OK(deliveries, "an aggregate is parked before a message has had %d (MAX_DELIVERIES); the entity allows %d", p.MaxDeliveries, most)
	default:
		found.OK(deliveries, "an aggregate is parked before a message has had %d, after which the broker dead-letters it", most)
	}
	if !d.KeepsExpired {
		found.Problem(expiry, "switch on dead-lettering on message expiration",
			"%q drops messages that have expired: an event that waits for longer than its time to live is lost", p.Entity.String())
		return
	}
	found.OK(expiry, "messages that have expired are dead-lettered, not dropped")
}
