package pipeline

import (
	"time"

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

	unknown *unknownEncoding // message of an unknown encoding that was received behind these, or nil

	deliveries uint32        // the highest delivery count of the messages that were received last
	pause      time.Duration // at most, before the next settlement, because of deliveries; 0: none
	spans      *spans        // nil: not traced
	fetched    *fetchedBody  // the one body of a claim check that is in memory, or nil
	most       int           // the most changes that are written at once
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

// decode reads the messages. A message that cannot be read is poison from the start, and so is one
// that was delivered so often that the broker might soon dead-letter it, unless it turns out to be
// applied already. Poison parks its aggregate if the message names one. The batch ends before the
// first message of an unknown encoding.
func (p *Pipeline) decode(messages []*azservicebus.ReceivedMessage) *batch {
	b := &batch{most: p.opts.Batch}
	parkAt := parkAtDelivery(p.MaxDeliveries())
	for _, m := range messages {
		if contentType, is := envelope.UnknownEncoding(m); is {
			b.unknown = &unknownEncoding{m, contentType}
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
	b.pause = redeliveryPause(b.deliveries)
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
