package publish

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// witness is the batch that was acknowledged last. When nothing but a suspect message is left to be sent, its last message is sent once
// more, which tells whether Service Bus takes anything: the broker drops the repeat by its MessageId, and where it has forgotten that,
// position guards do. It is never sent behind a later message of its session.
type witness struct {
	session  string // of the last message
	batch    Batch
	messages int
}

// remember makes an acknowledged batch the witness. A message that was too large for a batch is not kept for that.
func (p *Publisher) remember(acknowledged load) {
	last := acknowledged.items[len(acknowledged.items)-1]
	if last.message == nil { // the batch holds it
		p.witness.Store(&witness{last.session, acknowledged.batch, len(acknowledged.items)})
		return
	}
	if w := p.witness.Load(); w != nil && w.session == last.session {
		p.witness.CompareAndSwap(w, nil)
	}
}

// vouch sends the witness once more, apart from all others, if nothing of its session is under way but what this separation holds.
// What comes of it is seen in taken.
func (s *separation) vouch(ctx context.Context) error {
	p := s.lane.publisher
	w := p.witness.Load()
	if w == nil {
		return nil
	}
	if !s.holds(w.session) {
		session := s.lane.dispatcher.hold(w.session)
		if session == nil {
			return nil // something of it is under way, and tells as much
		}
		defer s.lane.dispatcher.release(session)
		if p.witness.Load() != w {
			return nil // something else was taken
		}
	}
	batch := w.batch
	if w.messages > 1 {
		var err error
		if _, batch, err = batch.Split(w.messages - 1); err != nil {
			return err
		}
	}
	if err := p.broker.SendApart(ctx, batch); err != nil {
		return err
	}
	p.taken.Add(1)
	return nil
}

func (s *separation) holds(session string) bool {
	for _, b := range s.leased {
		if b.session == session {
			return true
		}
	}
	return false
}

// errNoProof is a message that is not parked, because it may be all messages that are refused.
var errNoProof = errors.New("nothing else is taken either, so it is not parked (ON_REFUSED=park): see whether the entity takes messages")

// awaitProof waits until Service Bus has taken another message than the one that it refuses, since taken was since: an entity that takes
// nothing refuses everything, and not because of what a message is.
func (s *separation) awaitProof(ctx context.Context, since int64) error {
	p := s.lane.publisher
	for begun, backoff := time.Now(), (retry.Backoff{Initial: 100 * time.Millisecond, Max: 2 * time.Second}); p.taken.Load() <= since; {
		// Its error is another one's business: either that one sees it too, or nothing is taken.
		_ = p.fenced(ctx, s.vouch)
		if p.taken.Load() > since {
			break
		}
		if p.config.StallAfter > 0 && time.Since(begun) >= p.config.StallAfter/2 {
			return errNoProof
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
