package pipeline

import (
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// batch is received messages, each with its change and the result of the change.
type batch struct {
	messages []*azservicebus.ReceivedMessage
	changes  []envelope.Change
	results  []apply.Result

	deliveries   uint32                                  // the highest delivery count of the messages that were received last
	lastDelivery bool                                    // one of them is to park its aggregate, because of its delivery count
	spans        *spans                                  // nil: not traced
	fetched      *fetchedBody                            // the one body of a claim check that is in memory, or nil
	answers      *answers                                // the session's; nil: the projection is part of this process
	packs        map[*azservicebus.ReceivedMessage]*pack // by the messages of their events
	most         int                                     // the most changes that are written at once
	// oneByOne is set if a pack was delivered so often that its events are tried one by one.
	oneByOne bool
	round
}

// fetchedBody is the body of a message with a claim check.
type fetchedBody struct {
	message *azservicebus.ReceivedMessage
	claim   *envelope.Claim
	done    func() // frees the memory
}

// decode reads the messages. A message that cannot be read is poison from the start, and so is one
// that was delivered so often that the broker might soon dead-letter it, unless it turns out to be
// applied already. Poison parks its aggregate if the message names one. unknown is the first
// message of an unknown encoding, or nil; it and those behind it are not in the batch.
func (p *Pipeline) decode(messages []*azservicebus.ReceivedMessage) (b *batch, unknown *azservicebus.ReceivedMessage) {
	b = &batch{most: p.opts.Batch}
	parkAt := parkAtDelivery(p.MaxDeliveries())
	for _, m := range messages {
		if _, is := envelope.UnknownEncoding(m); is {
			unknown = m
			break
		}
		b.deliveries = max(b.deliveries, m.DeliveryCount)
		if b.unpack(m, parkAt, p.MaxDeliveries()) {
			continue
		}
		change, err := envelope.Decode(m)
		switch {
		case err != nil:
			b.add(m, envelope.Partial(m), apply.Undecodable(err))
		case m.DeliveryCount >= parkAt:
			b.add(m, change, apply.DeliveriesExhausted(m.DeliveryCount, p.MaxDeliveries()))
		default:
			b.add(m, change, apply.Result{})
		}
	}
	b.lastDelivery = b.deliveries >= parkAt
	return b, unknown
}

// join returns a batch of messages that were deferred and, behind them, those that were received.
func join(deferred, received *batch) *batch {
	if deferred.len() == 0 {
		return received
	}
	b := &batch{
		deliveries: received.deliveries, lastDelivery: received.lastDelivery, spans: received.spans, oneByOne: received.oneByOne, most: received.most,
		packs: joinPacks(deferred.packs, received.packs),
	}
	for _, part := range []*batch{deferred, received} {
		b.messages = append(b.messages, part.messages...)
		b.changes = append(b.changes, part.changes...)
		b.results = append(b.results, part.results...)
	}
	return b
}

func (b *batch) len() int { return len(b.messages) }

func (b *batch) add(m *azservicebus.ReceivedMessage, c envelope.Change, r apply.Result) {
	b.messages = append(b.messages, m)
	b.changes = append(b.changes, c)
	b.results = append(b.results, r)
}

// bytes returns the size of the messages' bodies, and of the answers for them.
func (b *batch) bytes() int {
	n := b.answers.size()
	for _, m := range b.messages {
		n += len(m.Body)
	}
	return n
}

// dropBody frees the body that was fetched for a change. An attempt that needs it fetches it again.
func (b *batch) dropBody() {
	if b.fetched == nil {
		return
	}
	for i, m := range b.messages {
		if m == b.fetched.message {
			b.changes[i].Body, b.changes[i].Claim = nil, b.fetched.claim
		}
	}
	b.fetched.done()
	b.fetched = nil
}
