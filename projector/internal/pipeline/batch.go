package pipeline

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
	pace    func() error
	spans   *spans       // nil when nobody traces them
	fetched *fetchedBody // the one body of a claim check that is in memory; nil: none is
}

// fetchedBody is the body of a message with a claim check.
type fetchedBody struct {
	message *azservicebus.ReceivedMessage
	claim   *envelope.Claim
	done    func() // frees the memory
}

func (b *batch) len() int { return len(b.messages) }

// rest returns the part of the batch that is not decided: changes that wait for another one of their aggregate, for a body or a version,
// or failed. progress reports whether an attempt can decide more of it.
func (b *batch) rest() (rest *batch, progress bool) {
	rest = &batch{spans: b.spans, fetched: b.fetched}
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

// first yields the first change of each aggregate. In a batch of undecided changes that is what its aggregate waits for.
func (b *batch) first() iter.Seq[int] {
	return func(yield func(int) bool) {
		seen := make(map[string]bool)
		for i := range b.changes {
			if name := b.changes[i].Aggregate; !seen[name] {
				seen[name] = true
				if !yield(i) {
					return
				}
			}
		}
	}
}

// bytes is the size of the messages' bodies.
func (b *batch) bytes() (n int) {
	for _, m := range b.messages {
		n += len(m.Body)
	}
	return n
}

// dropBody frees the body that was fetched for a change; an attempt that needs it fetches it again.
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
