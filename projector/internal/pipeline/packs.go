package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// A pack is unpacked as soon as it is received: each of its events has a message of its own in the
// batch, as if it had come alone. The pack itself is completed once its last event is decided,
// however many attempts, batches and receives that takes. An event that would be dead-lettered is
// copied to a collection of the read model first ([apply.Applier.SetAside]), so no dead letter
// holds events of several aggregates.

// pack is a received pack whose events are in hand.
type pack struct {
	message   *azservicebus.ReceivedMessage // without its body
	undecided int                           // events that are not settled
	// usedUp is the event that parks its aggregate because the pack was delivered too often: the
	// first one that is not decided; nil without one. used is the result.
	usedUp *azservicebus.ReceivedMessage
	used   apply.Result
	events []*azservicebus.ReceivedMessage // that have not been usedUp; nil unless one is
}

// onePerAttempt is the delivery from which the events of a pack are applied one by one at the
// latest: an event that ends the projector must not use up the deliveries of the events before it.
const onePerAttempt = 3

// unpack adds the events of a pack. It reports false for any other message.
func (b *batch) unpack(m *azservicebus.ReceivedMessage, parkAt uint32, most int) bool {
	events, isPack := envelope.Unpack(m)
	if !isPack {
		return false
	}
	m.Body = nil // the events have it
	p := &pack{message: m, undecided: len(events)}
	if m.DeliveryCount >= min(onePerAttempt, parkAt-1) {
		b.oneByOne = true
	}
	if m.DeliveryCount >= parkAt {
		p.used, p.usedUp, p.events = apply.DeliveriesExhausted(m.DeliveryCount, most), events[0], events[1:]
	}
	for _, m := range events {
		change, err := envelope.Decode(m)
		e := event{message: m, pack: p}
		switch {
		case err != nil:
			b.add(e, envelope.Partial(m), apply.Undecodable(err))
		case m == p.usedUp:
			b.add(e, change, p.used)
		default:
			b.add(e, change, apply.Result{})
		}
	}
	return true
}

// repack replaces the settlements of packed events by that of their pack, which is completed with
// the last of them. The events that would be dead-lettered are set aside before. An error leaves
// packs incomplete: they are delivered again, and the guards recognise what was applied.
func (h *handler) repack(ctx context.Context, b *batch, settlements []settlement) ([]settlement, error) {
	var aside []apply.SetAsideEvent
	repacked := slices.Clone(settlements)
	for i, s := range settlements {
		p := b.events[i].pack
		if p == nil || s.action == leave {
			continue
		}
		if s.action == deadLetter {
			aside = append(aside, apply.SetAsideEvent{Change: b.changes[i], Message: s.message, Reason: s.reason, Description: s.description})
		}
		repacked[i] = settlement{action: leave}
		if p.undecided--; p.undecided == 0 {
			repacked[i] = settlement{action: complete, message: p.message}
		}
	}
	if len(aside) == 0 {
		return repacked, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.opts.ApplyTimeout)
	defer cancel()
	if err := h.opts.Applier.SetAside(ctx, aside); err != nil {
		return nil, fmt.Errorf("set events of a pack aside: %w", err)
	}
	return repacked, nil
}
