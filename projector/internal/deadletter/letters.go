package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Letter is a dead letter of an aggregate, without its content.
type Letter struct {
	MessageID string
	// Position is empty, and Version 0, if the message has none.
	Position string
	Version  int64
	Reason   string
	key      letterKey
	arrived  int64 // see [apply.Arrival]
	session  string
	change   envelope.Change // without its body
	// message is its message, if it was kept.
	message *azservicebus.ReceivedMessage
}

// letterKey identifies a dead letter: by its sequence number, or by the id of the copy that was
// made of an event of a pack.
type letterKey struct {
	sequence int64
	aside    string
}

// keepBytes bounds the bodies that are kept of the messages that a scan has seen. Those that are
// not kept are fetched again.
const keepBytes = 16 << 20

func (p *Replayer) closeDeadLetters(ctx context.Context, receiver *azservicebus.Receiver) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.SettleTimeout)
	defer cancel()
	_ = receiver.Close(closing) // nothing of it is kept
}

// scan calls f with every message, those of one partition in order of sequence numbers, until f
// returns false. Errors: among others [ErrIncomplete]; a message that was not seen may matter.
func (p *Replayer) scan(ctx context.Context, from Peeker, f func(*azservicebus.ReceivedMessage) bool) error {
	if err := PeekAll(ctx, within{from, 2 * p.SettleTimeout}, f); err != nil {
		return fmt.Errorf("read the dead-letter queue: %w", err)
	}
	return nil
}

// within bounds each peek.
type within struct {
	Peeker
	timeout time.Duration
}

func (w within) PeekMessages(ctx context.Context, count int, o *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.Peeker.PeekMessages(ctx, count, o)
}

// lettersWhere returns the dead letters of those aggregates that are wanted, each aggregate's in
// the order in which they are to be applied, and the aggregates in order of their first. If unpack
// is true, the packs among the dead letters are replaced by copies of their events.
func (p *Replayer) lettersWhere(
	ctx context.Context, from Peeker, unpack bool, wanted func(aggregate string) bool,
) (letters map[string][]Letter, names []string, err error) {
	letters = make(map[string][]Letter)
	kept := 0
	add := func(l Letter) {
		if letters[l.change.Aggregate] == nil {
			names = append(names, l.change.Aggregate)
		}
		letters[l.change.Aggregate] = append(letters[l.change.Aggregate], l)
	}
	var packs []*azservicebus.ReceivedMessage
	var unknown error
	err = p.scan(ctx, from, func(m *azservicebus.ReceivedMessage) bool {
		if contentType, is := envelope.UnknownEncoding(m); is {
			unknown = fmt.Errorf("%w (message %s, content type %s)", ErrUnknownEncoding, m.MessageID, contentType)
			return false
		}
		if events, isPack := envelope.Unpack(m); isPack {
			if unpack {
				packs = append(packs, m)
				return true
			}
			for _, e := range events {
				if c := envelope.Partial(e); wanted(c.Aggregate) {
					add(letterOf(e, c))
				}
			}
			return true
		}
		c := envelope.Partial(m)
		if !wanted(c.Aggregate) {
			return true
		}
		l := letterOf(m, c)
		if kept+len(m.Body) <= keepBytes {
			kept, l.message = kept+len(m.Body), m
		}
		add(l)
		return true
	})
	if err = cmp.Or(err, unknown); err == nil {
		err = p.unpack(ctx, packs)
	}
	if err == nil {
		err = p.Applier.Asides(ctx, false, nil, func(a apply.Aside) {
			if c := envelope.Partial(a.Message); wanted(c.Aggregate) {
				l := letterOf(a.Message, c)
				l.key = letterKey{aside: a.ID}
				if letters[c.Aggregate] == nil {
					names = append(names, c.Aggregate)
				}
				letters[c.Aggregate] = insert(letters[c.Aggregate], l)
			}
		})
	}
	for _, of := range letters {
		order(of)
	}
	return letters, names, err
}

// unpack replaces packs in the dead-letter queue, which the broker or an old version put there, by
// copies of their events. A reason of the projector's own proves nothing about a packed event: a
// version that could not read the pack gave it.
func (p *Replayer) unpack(ctx context.Context, packs []*azservicebus.ReceivedMessage) error {
	for _, m := range packs {
		var copies []apply.SetAsideEvent
		events, _ := envelope.Unpack(m)
		for _, e := range events {
			c := envelope.Partial(e)
			copies = append(copies, apply.SetAsideEvent{Change: c, Message: e, Reason: packReason(m), Description: "the pack of the event was dead-lettered"})
		}
		if err := p.Applier.SetAside(ctx, copies); err != nil {
			return fmt.Errorf("unpack message %s of the dead-letter queue: %w", m.MessageID, err)
		}
		removed, err := p.remove(ctx, map[letterKey]bool{{sequence: *m.SequenceNumber}: true})
		switch {
		case err != nil:
			return err
		case removed == 0:
			return fmt.Errorf("%w: message %s, which holds several events", ErrLocked, m.MessageID)
		}
	}
	return nil
}

func packReason(m *azservicebus.ReceivedMessage) string {
	reason := *cmp.Or(m.DeadLetterReason, new(""))
	if apply.ByProjector(reason) {
		return "Packed" + reason
	}
	return reason
}

func letterOf(m *azservicebus.ReceivedMessage, c envelope.Change) Letter {
	return Letter{
		MessageID: c.MessageID, Position: c.Position, Version: c.Version, Reason: *cmp.Or(m.DeadLetterReason, new("")),
		key: letterKey{sequence: *m.SequenceNumber}, arrived: apply.Arrival(m), session: *cmp.Or(m.SessionID, new("")), change: c,
	}
}

// insert adds a copy to letters, before the first one that arrived later.
func insert(letters []Letter, l Letter) []Letter {
	at := slices.IndexFunc(letters, func(other Letter) bool { return other.arrived > l.arrived })
	if at < 0 {
		at = len(letters)
	}
	return slices.Insert(letters, at, l)
}

// order sorts letters, which come in the order in which they arrived, by position. Positions of two
// streams do not compare, so a letter stays where it arrived, unless it arrived behind a later one
// of its own stream, as a repeat does: it goes directly before the first such letter. A letter
// without a position stays behind those that were dead-lettered before it.
func order(letters []Letter) {
	type placed struct {
		Letter
		before int // the index of the letter that it goes before, or its own
	}
	stream, records := "", make(map[string][]placed) // the letters of each stream with a higher position than all before
	all := make([]placed, len(letters))
	for i, l := range letters {
		all[i] = placed{l, i}
		stream = cmp.Or(l.change.Stream, stream)
		if l.Position == "" {
			continue
		}
		later := sort.Search(len(records[stream]), func(at int) bool { return records[stream][at].Position > l.Position })
		if later < len(records[stream]) {
			all[i].before = records[stream][later].before
		} else {
			records[stream] = append(records[stream], all[i])
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.before, b.before), cmp.Compare(a.Position, b.Position))
	})
	for i := range all {
		letters[i] = all[i].Letter
	}
}

// contents returns the messages of letters, in the same order; it fetches those that were not kept.
func (p *Replayer) contents(ctx context.Context, from Peeker, letters []Letter) ([]*azservicebus.ReceivedMessage, error) {
	wanted := make(map[letterKey]*azservicebus.ReceivedMessage, len(letters))
	var asides []string
	for _, l := range letters {
		if wanted[l.key] = l.message; l.key.aside != "" {
			asides = append(asides, l.key.aside)
		}
	}
	if len(asides) > 0 {
		err := p.Applier.Asides(ctx, true, asides, func(a apply.Aside) { wanted[letterKey{aside: a.ID}] = a.Message })
		if err != nil {
			return nil, err
		}
	}
	messages := make([]*azservicebus.ReceivedMessage, 0, len(letters))
	for _, l := range letters {
		if wanted[l.key] == nil && l.key.aside == "" {
			found, err := within{from, 2 * p.SettleTimeout}.PeekMessages(ctx, page, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &l.key.sequence})
			if err != nil {
				return nil, fmt.Errorf("peek at the dead-letter queue: %w", err)
			}
			for _, m := range found {
				if m.SequenceNumber == nil {
					continue
				}
				if _, ok := wanted[letterKey{sequence: *m.SequenceNumber}]; ok {
					wanted[letterKey{sequence: *m.SequenceNumber}] = m
				}
			}
		}
		m := wanted[l.key]
		if m == nil {
			return nil, fmt.Errorf("message %s has left the dead-letter queue during the replay; run the command again", l.MessageID)
		}
		messages = append(messages, m)
	}
	return messages, nil
}
