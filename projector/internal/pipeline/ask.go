package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// ask asks the projection's program for the writes of the changes that the next attempt tries,
// unless it has answered, and keeps the answers for which there is room, at least the first one. It
// has a time-out of its own, so that APPLY_TIMEOUT is for MongoDB alone. The error is why the batch
// waits.
func (h *handler) ask(ctx context.Context, b *batch) error {
	if h.opts.Remote == nil {
		return nil
	}
	indexes := b.askable()
	var asked []int
	for _, i := range indexes {
		if b.events[i].answer == nil {
			asked = append(asked, i)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	kept := b.answerBytes()
	full := func(more int) bool { return h.opts.AnswerBytes > 0 && kept > 0 && kept+more > h.opts.AnswerBytes }
	if full(1) {
		kept = b.keepAnswers(indexes)
	}
	if full(1) && asked[0] != indexes[0] {
		return nil // first the answers that there are
	}
	if h.portion > 0 {
		asked = asked[:min(len(asked), h.portion)]
	}
	events := make([]*envelope.Change, len(asked))
	for n, i := range asked {
		events[n] = &b.changes[i]
	}
	outcomes, err := h.opts.Remote.Ask(ctx, events)
	h.portion *= 2
	for n, i := range asked {
		if outcomes[n] == nil {
			continue
		}
		if full(outcomes[n].Bytes) {
			if i != indexes[0] {
				h.portion = max(n, 1)
				break
			}
			kept = b.keepAnswers(nil) // the answers behind the first change must not keep it waiting
		}
		b.events[i].answer = outcomes[n]
		kept += outcomes[n].Bytes
	}
	return err
}

// answerBytes returns the size of the answers that are kept.
func (b *batch) answerBytes() (n int) {
	for i := range b.events {
		if answer := b.events[i].answer; answer != nil {
			n += answer.Bytes
		}
	}
	return n
}

// keepAnswers drops the answers for all changes except some, and returns the size of those.
func (b *batch) keepAnswers(indexes []int) (bytes int) {
	for i := range b.events {
		if !slices.Contains(indexes, i) {
			b.events[i].answer = nil
		}
	}
	return b.answerBytes()
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

// askedToWait returns how long a program asks to wait.
func askedToWait(err error) time.Duration {
	if away, ok := errors.AsType[*remote.Away](err); ok {
		return away.Wait
	}
	return 0
}
