package pipeline

import (
	"context"
	"fmt"
	"maps"

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
	if b.packs == nil {
		b.packs = make(map[*azservicebus.ReceivedMessage]*pack)
	}
	for _, e := range events {
		b.packs[e] = p
		change, err := envelope.Decode(e)
		switch {
		case err != nil:
			b.add(e, envelope.Partial(e), apply.Undecodable(err))
		case e == p.usedUp:
			b.add(e, change, p.used)
		default:
			b.add(e, change, apply.Result{})
		}
	}
	return true
}

// nextUsedUp has the next event of a pack that was delivered too often park its aggregate, if the
// one before it turned out to be applied.
func (b *batch) nextUsedUp() {
	if len(b.packs) == 0 {
		return
	}
	for i, m := range b.messages {
		p := b.packs[m]
		if p == nil || p.usedUp == nil {
			continue
		}
		switch {
		case m == p.usedUp && (b.results[i].Kind == apply.Duplicate || b.results[i].Kind == apply.Applied):
			if p.usedUp = nil; len(p.events) > 0 {
				p.usedUp, p.events = p.events[0], p.events[1:]
			}
		case m == p.usedUp && b.results[i].Kind == apply.Pending:
			b.results[i] = p.used
		}
	}
}

// joinPacks returns the packs of two batches.
func joinPacks(a, b map[*azservicebus.ReceivedMessage]*pack) map[*azservicebus.ReceivedMessage]*pack {
	if len(a) == 0 {
		return b
	}
	if len(b) > 0 {
		maps.Copy(a, b)
	}
	return a
}

// repack replaces the settlements of packed events by that of their pack, which is completed with
// the last of them. The events that would be dead-lettered are set aside before. An error leaves
// packs incomplete: they are delivered again, and the guards recognise what was applied.
func (h *handler) repack(ctx context.Context, b *batch, settlements []settlement) ([]*azservicebus.ReceivedMessage, []settlement, error) {
	if len(b.packs) == 0 {
		return b.messages, settlements, nil
	}
	var aside []apply.SetAsideEvent
	messages, sent := make([]*azservicebus.ReceivedMessage, b.len()), make([]settlement, b.len())
	copy(messages, b.messages)
	copy(sent, settlements)
	for i, m := range b.messages {
		p := b.packs[m]
		if p == nil || settlements[i].action == leave {
			continue
		}
		if settlements[i].action == deadLetter {
			aside = append(aside, apply.SetAsideEvent{
				Change: b.changes[i], Message: m, Reason: settlements[i].reason, Description: settlements[i].description,
			})
		}
		sent[i] = settlement{action: leave}
		if p.undecided--; p.undecided == 0 {
			messages[i], sent[i] = p.message, settlement{action: complete}
		}
	}
	if len(aside) == 0 {
		return messages, sent, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.opts.ApplyTimeout)
	defer cancel()
	if err := h.opts.Applier.SetAside(ctx, aside); err != nil {
		return nil, nil, fmt.Errorf("set events of a pack aside: %w", err)
	}
	return messages, sent, nil
}
