package pipeline

import (
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// batch is received events, each with its change and the result of the change.
type batch struct {
	events  []event
	changes []envelope.Change
	results []apply.Result

	// unknown is the message of an unknown encoding that was received behind these, or nil.
	unknown *azservicebus.ReceivedMessage

	deliveries   uint32       // the highest delivery count of the messages that were received last
	lastDelivery bool         // one of them is to park its aggregate, because of its delivery count
	spans        *spans       // nil: not traced
	fetched      *fetchedBody // the one body of a claim check that is in memory, or nil
	most         int          // the most changes that are written at once
	// oneByOne is set if a pack was delivered so often that its events are tried one by one.
	oneByOne bool
	round
}

// event is what is known of a change besides the change.
type event struct {
	message *azservicebus.ReceivedMessage
	pack    *pack           // in which it came; nil: it came alone
	answer  *remote.Outcome // of the projection's program; nil: none is kept
	span    trace.Span      // from its receipt until it is decided; nil: not traced
}

// fetchedBody is the body of a message with a claim check.
type fetchedBody struct {
	message *azservicebus.ReceivedMessage
	claim   *envelope.Claim
	done    func() // frees the memory
}

// decode reads the messages. A message that cannot be read is poison from the start, and so is one
// that was delivered so often that the broker might soon dead-letter it, unless it turns out to be
// applied already. Poison parks its aggregate if the message names one. The batch ends before the
// first message of an unknown encoding.
func (p *Pipeline) decode(messages []*azservicebus.ReceivedMessage) *batch {
	b := &batch{most: p.opts.Batch}
	parkAt := parkAtDelivery(p.MaxDeliveries())
	for _, m := range messages {
		if _, is := envelope.UnknownEncoding(m); is {
			b.unknown = m
			break
		}
		b.deliveries = max(b.deliveries, m.DeliveryCount)
		if b.unpack(m, parkAt, p.MaxDeliveries()) {
			continue
		}
		change, err := envelope.Decode(m)
		switch {
		case err != nil:
			b.add(event{message: m}, envelope.Partial(m), apply.Undecodable(err))
		case m.DeliveryCount >= parkAt:
			b.add(event{message: m}, change, apply.DeliveriesExhausted(m.DeliveryCount, p.MaxDeliveries()))
		default:
			b.add(event{message: m}, change, apply.Result{})
		}
	}
	b.lastDelivery = b.deliveries >= parkAt
	return b
}

// join returns the events that were received, behind those that wait. waiting is not used any more.
func join(waiting, received *batch) *batch {
	received.events = append(waiting.events, received.events...)
	received.changes = append(waiting.changes, received.changes...)
	received.results = append(waiting.results, received.results...)
	return received
}

func (b *batch) len() int { return len(b.events) }

func (b *batch) add(e event, c envelope.Change, r apply.Result) {
	b.events = append(b.events, e)
	b.changes = append(b.changes, c)
	b.results = append(b.results, r)
}

// bytes returns the size of the messages' bodies, and of the answers for them.
func (b *batch) bytes() int {
	n := b.answerBytes()
	for i := range b.events {
		n += len(b.events[i].message.Body)
	}
	return n
}

// dropBody frees the body that was fetched for a change. An attempt that needs it fetches it again.
func (b *batch) dropBody() {
	if b.fetched == nil {
		return
	}
	for i := range b.events {
		if b.events[i].message == b.fetched.message {
			b.changes[i].Body, b.changes[i].Claim = nil, b.fetched.claim
		}
	}
	b.fetched.done()
	b.fetched = nil
}
