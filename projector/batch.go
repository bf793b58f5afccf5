package projector

import (
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// batch is received messages, each with its change and what became of it.
type batch struct {
	messages []*azservicebus.ReceivedMessage
	changes  []envelope.Change
	results  []apply.Result
	gaps     int // changes that were behind a gap before this round
	// pace, if set, is called once the changes are applied, or their aggregates parked, and before the messages are settled.
	pace  func() error
	spans *spans // nil when nobody traces them
}

func (b *batch) len() int { return len(b.messages) }

// rest is the part of the batch that is not decided: changes that wait for another one of their aggregate, or failed. progress says that this
// one was decided; without progress, all that is left waits for a version that is missing.
func (b *batch) rest() (rest *batch, progress bool) {
	rest = &batch{spans: b.spans}
	applied := make(map[string]bool)
	for i, r := range b.results {
		if r.Kind == apply.Applied {
			applied[b.changes[i].Aggregate] = true
		}
	}
	for i, r := range b.results {
		if r.Kind == apply.Gap && applied[b.changes[i].Aggregate] {
			r = apply.Result{} // what was applied may have closed the gap
		}
		switch r.Kind {
		case apply.Gap:
			rest.gaps++
		case apply.Poison:
			if r.Recorded {
				continue
			}
		case apply.Pending:
		case apply.Applied, apply.Duplicate, apply.Parked:
			continue
		}
		rest.addMessage(b.messages[i], b.changes[i], r)
	}
	return rest, rest.len() < b.len() || rest.gaps != b.gaps
}

func (b *batch) addMessage(m *azservicebus.ReceivedMessage, c envelope.Change, r apply.Result) {
	b.messages = append(b.messages, m)
	b.changes = append(b.changes, c)
	b.results = append(b.results, r)
}

// parts cuts a batch into what is applied at once: an event with a claim check stands alone, so that a session never holds more
// than one such body in memory.
func (b *batch) parts() iter.Seq[*batch] {
	return func(yield func(*batch) bool) {
		for begun := 0; begun < b.len(); {
			end := begun + 1
			for b.changes[begun].Claim == nil && end < b.len() && b.changes[end].Claim == nil {
				end++
			}
			part := &batch{messages: b.messages[begun:end], changes: b.changes[begun:end], results: b.results[begun:end], spans: b.spans}
			part.pace, b.pace = b.pace, nil
			if !yield(part) {
				return
			}
			begun = end
		}
	}
}
