package pipeline

import (
	"iter"
	"slices"
	"time"

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

// round is the attempts to decide a batch between two receives.
type round struct {
	began        time.Time
	skip         map[string]bool // aggregates that are not tried in this round
	gaps         int             // changes that miss a version since before the last attempt
	limit        int             // changes that are tried at once, after attempts with more timed out; 0: all
	timeouts     int             // attempts in a row that timed out with nothing decided
	perAggregate bool            // after an attempt that failed, each aggregate is written in a transaction of its own
}

// fetchedBody is the body of a message with a claim check.
type fetchedBody struct {
	message *azservicebus.ReceivedMessage
	claim   *envelope.Claim
	done    func() // frees the memory
}

// decode reads the messages. A message that cannot be read is poison from the start, and so is one
// that was delivered so often that the broker might soon dead-letter it, unless it turns out to be
// applied already. Poison parks its aggregate if the message names one.
func (p *Pipeline) decode(messages []*azservicebus.ReceivedMessage) *batch {
	b := batch{most: p.opts.Batch}
	parkAt := parkAtDelivery(p.MaxDeliveries())
	for _, m := range messages {
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
	return &b
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

// bounded returns how many changes are tried at once; 0: all.
func (b *batch) bounded(limit int) int {
	switch {
	case b.oneByOne:
		return 1
	case b.most > 0 && b.len() > b.most && (limit == 0 || limit > b.most):
		return b.most
	}
	return limit
}

// tries reports whether the next attempt tries any change.
func (b *batch) tries() bool {
	for i := range b.first() {
		if b.results[i].Kind == apply.Pending && b.changes[i].Claim == nil && !b.skip[b.changes[i].Aggregate] {
			return true
		}
	}
	return false
}

// onlyTried returns the change that an attempt tried first, if it tried one aggregate only.
func (b *batch) onlyTried(a attempt) (index int, ok bool) {
	for i := range b.first() {
		c := &b.changes[i]
		switch {
		case b.skip[c.Aggregate] || c.Claim != nil || b.results[i].Kind != apply.Pending:
		case ok:
			return 0, false
		default:
			if index, ok = i, true; a.limit == 1 {
				return index, true
			}
		}
	}
	return index, ok
}

// learn decides from an attempt how the next one writes: half as many changes at once after two
// attempts that timed out, more again after one in which something was decided, and each aggregate
// in a transaction of its own after a failure, which shows to which aggregate the failure belongs.
func (b *batch) learn(a attempt) {
	if a.err != nil || len(a.failures) > 0 {
		b.perAggregate = true
	}
	pending, decided := 0, false
	for i, r := range b.results {
		switch r.Kind {
		case apply.Pending:
			if !b.skip[b.changes[i].Aggregate] {
				pending++
			}
		case apply.Applied, apply.Duplicate, apply.Parked:
			decided = true
		case apply.Poison, apply.Gap:
		}
	}
	switch {
	case decided:
		b.limit, b.timeouts = b.bounded(2*b.limit), 0
	case a.timedOut:
		if b.timeouts++; b.timeouts == 2 {
			if b.limit > 0 {
				pending = min(pending, b.limit)
			}
			b.limit, b.timeouts = max(pending/2, 1), 0
		}
	}
}

// dropDecided drops the changes that are decided, and reports whether another attempt can decide
// more of the rest.
func (b *batch) dropDecided() (progress bool) {
	rest, gaps := &batch{}, 0
	applied := make(map[string]bool)
	if slices.ContainsFunc(b.results, func(r apply.Result) bool { return r.Kind == apply.Gap }) {
		for i, r := range b.results {
			applied[b.changes[i].Aggregate] = applied[b.changes[i].Aggregate] || r.Kind == apply.Applied
		}
	}
	for i, r := range b.results {
		if r.Kind == apply.Gap && applied[b.changes[i].Aggregate] {
			r = apply.Result{} // the applied change may be the one that was missing
		}
		if decided(r) {
			b.answers.drop(b.messages[i])
			continue
		}
		if r.Kind == apply.Gap {
			gaps++
		}
		rest.add(b.messages[i], b.changes[i], r)
	}
	progress = rest.len() < b.len() || gaps != b.gaps
	b.messages, b.changes, b.results, b.gaps = rest.messages, rest.changes, rest.results, gaps
	return progress
}

// decided reports whether a result is final: the effect of the change is committed, or will never
// be.
func decided(r apply.Result) bool {
	switch r.Kind {
	case apply.Applied, apply.Duplicate, apply.Parked:
		return true
	case apply.Poison:
		return r.Recorded
	case apply.Pending, apply.Gap:
	}
	return false
}

// first yields the first change of each aggregate. In a batch of undecided changes that is the one
// its aggregate waits for.
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
