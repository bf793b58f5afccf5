package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// answers are what a projection in another process has answered for the events that a session has
// in hand. A nil *answers has none.
type answers struct {
	of    map[*azservicebus.ReceivedMessage]*remote.Outcome
	bytes int // of all
	room  int // for all, except that one answer is kept whatever its size; 0: no bound
	// portion is for how many events to ask at once, after answers that did not fit; 0: all.
	portion int
}

// full reports whether there is no room for another answer of that size.
func (k *answers) full(more int) bool { return k.room > 0 && k.bytes > 0 && k.bytes+more > k.room }

func (k *answers) get(m *azservicebus.ReceivedMessage) *remote.Outcome { return k.of[m] }

func (k *answers) keep(m *azservicebus.ReceivedMessage, o *remote.Outcome) {
	k.of[m] = o
	k.bytes += o.Bytes
}

func (k *answers) drop(m *azservicebus.ReceivedMessage) {
	if k == nil || k.of[m] == nil {
		return
	}
	k.bytes -= k.of[m].Bytes
	delete(k.of, m)
}

func (k *answers) clear() {
	clear(k.of)
	k.bytes = 0
}

// size returns the bytes of all answers.
func (k *answers) size() int {
	if k == nil {
		return 0
	}
	return k.bytes
}

// askable returns the changes that an attempt might try.
func (b *batch) askable() (indexes []int) {
	blocked := make(map[string]bool)
	gap := make(map[string]string) // the position behind which an aggregate waits
	for i := range b.changes {
		c := &b.changes[i]
		switch at, gapped := gap[c.Aggregate]; {
		case b.skip[c.Aggregate], blocked[c.Aggregate], gapped && c.Position > at:
		case b.results[i].Kind == apply.Gap:
			gap[c.Aggregate] = c.Position
		case b.results[i].Kind != apply.Pending, c.Claim != nil:
			blocked[c.Aggregate] = true
		default:
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// ask asks the projection's program for the writes of the changes that the next attempt tries,
// unless it has answered, and keeps the answers for which there is room, at least the first one. It
// has a time-out of its own, so that APPLY_TIMEOUT is for MongoDB alone. The error is why the batch
// waits.
func (h *handler) ask(ctx context.Context, b *batch) error {
	k := b.answers
	if k == nil {
		return nil
	}
	indexes := b.askable()
	var asked []int
	for _, i := range indexes {
		if k.get(b.messages[i]) == nil {
			asked = append(asked, i)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	if k.full(1) {
		b.keepAnswers(indexes)
	}
	if k.full(1) && asked[0] != indexes[0] {
		return nil // first the answers that there are
	}
	if k.portion > 0 {
		asked = asked[:min(len(asked), k.portion)]
	}
	events := make([]*envelope.Change, len(asked))
	for n, i := range asked {
		events[n] = &b.changes[i]
	}
	outcomes, err := h.opts.Remote.Ask(ctx, events)
	k.portion *= 2
	for n, i := range asked {
		if outcomes[n] == nil {
			continue
		}
		if k.full(outcomes[n].Bytes) {
			if i != indexes[0] {
				k.portion = max(n, 1)
				break
			}
			k.clear() // the answers behind the first change must not keep it waiting
		}
		k.keep(b.messages[i], outcomes[n])
	}
	return err
}

// keepAnswers drops the answers for all changes except some.
func (b *batch) keepAnswers(indexes []int) {
	kept := make(map[*azservicebus.ReceivedMessage]bool, len(indexes))
	for _, i := range indexes {
		kept[b.messages[i]] = true
	}
	for m := range b.answers.of {
		if !kept[m] {
			b.answers.drop(m)
		}
	}
}

// askedToWait returns how long a program asks to wait.
func askedToWait(err error) time.Duration {
	if away, ok := errors.AsType[*remote.Away](err); ok {
		return away.Wait
	}
	return 0
}
