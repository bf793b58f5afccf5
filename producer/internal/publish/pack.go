package publish

import (
	"context"
	"errors"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// With [Config.PackEvents], events of one session that already wait are put into one message. No
// event waits for others. A batch then counts messages, of which some hold several events.

// count returns the number of messages of a batch.
func (b *loadedBatch) count() int { return len(b.events) }

// added records that the events of items are in one more message.
func (b *loadedBatch) added(items ...*item) {
	b.events = append(b.events, len(items))
	b.items = append(b.items, items...)
}

// cut returns the first n messages and the rest.
func (b *loadedBatch) cut(n int) (first, rest loadedBatch, err error) {
	one, other, err := b.batch.Split(n)
	if err != nil {
		return first, rest, err
	}
	at := 0
	for _, events := range b.events[:n] {
		at += events
	}
	return loadedBatch{batch: one, items: b.items[:at], events: b.events[:n], sessions: b.sessions},
		loadedBatch{batch: other, items: b.items[at:], events: b.events[n:], sessions: b.sessions}, nil
}

// addPack adds the first of the items to the batch, with those behind it that fit into one message,
// and returns how many. With 0 the first item must have a message of its own.
func (l *lane) addPack(ctx context.Context, batch broker.Batch, items []*item) (n int, err error) {
	var p envelope.Pack
	for _, i := range items {
		if l.exceedsEntityLimit(i, batch.MaxMessageBytes()) || l.encode(ctx, i) != nil {
			break // its own turn decides
		}
		if added, err := p.Add(i.message, l.publisher.config.PackBytes); !added || err != nil {
			break
		}
	}
	if p.Len() < 2 {
		return 0, nil
	}
	err = batch.Add(p.Message(items[0].change.Generation))
	switch {
	case errors.Is(err, broker.ErrOversized):
		return 0, nil
	case err != nil:
		return 0, err
	}
	for _, i := range items[:p.Len()] {
		i.message, i.change.Body = nil, nil
	}
	return p.Len(), nil
}

// unpack returns the events of a batch of one message as batches of messages of their own.
func (l *lane) unpack(ctx context.Context, b loadedBatch) (parts []loadedBatch, err error) {
	_, body, err := b.batch.Content()
	if err != nil {
		return nil, err
	}
	singles, err := envelope.Singles(body, b.items[0].session, b.items[0].change.Generation)
	if err != nil {
		return nil, err
	}
	for n, m := range singles {
		if len(parts) > 0 {
			last := &parts[len(parts)-1]
			if err = last.batch.Add(m); err == nil {
				last.added(b.items[n])
				continue
			}
			if !errors.Is(err, broker.ErrFull) {
				return nil, err
			}
		}
		batch, err := l.newBatch(ctx)
		if err != nil {
			return nil, err
		}
		if err = batch.Add(m); errors.Is(err, broker.ErrOversized) {
			batch.AddUnbatched(m)
		} else if err != nil {
			return nil, err
		}
		part := loadedBatch{batch: batch, sessions: b.sessions}
		part.added(b.items[n])
		parts = append(parts, part)
	}
	return parts, nil
}
