package publish

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
)

// witness is the message of a session that was acknowledged last. While a later message of the session is suspect, it is sent once
// more, which shows whether Service Bus takes that session's messages: the broker drops the repeat by its MessageId, and if it has
// forgotten that, position guards do. It is never sent behind a later acknowledged message of its session.
type witness struct {
	session string
	batch   broker.Batch
	size    int64
}

// witnesses are the witnesses of the sessions that were acknowledged last, as far as a bound on bytes allows. It is safe for
// concurrent use.
type witnesses struct {
	most int64 // bytes

	mu    sync.Mutex
	of    map[string]*list.Element // guarded by mu
	order *list.List               // of *witness, the latest in front; guarded by mu
	size  int64                    // guarded by mu
}

// witnessOverhead is what a witness costs besides its message, about.
const witnessOverhead = 512

func newWitnesses(most int64) *witnesses {
	return &witnesses{most: most, of: map[string]*list.Element{}, order: list.New()}
}

// set makes the n-th message of a batch the witness of a session. A message that is too large to be kept leaves the session without.
func (w *witnesses) set(session string, b broker.Batch, n int) {
	one, size := b.One(n)
	next := &witness{session, one, int64(size) + witnessOverhead}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(w.of[session])
	if one == nil || next.size > w.most {
		return
	}
	w.of[session] = w.order.PushFront(next)
	for w.size += next.size; w.size > w.most; {
		w.remove(w.order.Back())
	}
}

// remove forgets a witness; the caller holds mu.
func (w *witnesses) remove(e *list.Element) {
	if e == nil {
		return
	}
	old := w.order.Remove(e).(*witness)
	delete(w.of, old.session)
	w.size -= old.size
}

// find returns the witness of a session, else the latest of any; nil if there is none at all.
func (w *witnesses) find(session string) *witness {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.of[session]
	if e == nil {
		e = w.order.Front()
	}
	if e == nil {
		return nil
	}
	return e.Value.(*witness)
}

// remember makes the last message of each session of an acknowledged load its witness.
func (p *Publisher) remember(acknowledged load) {
	items := acknowledged.items
	for n, i := range items {
		if n == len(items)-1 || items[n+1].session != i.session {
			p.witnesses.set(i.session, acknowledged.batch, n)
		}
	}
}

// askEvery is the time between two repeats of a witness for one suspect message.
const askEvery = 15 * time.Second

// ask looks for a proof that Service Bus takes other messages than the suspect one of a trial: its session's witness is sent once
// more. If that is objected to, it is not the message. For a session without a witness, what other sessions had acknowledged since it
// was last asked is the proof, or else the latest witness of any session. Asking goes on for as long as the message is suspect: in a
// stream in which all else is published it is the only progress, without which the leader would step down before REFUSED_AFTER.
func (s *separation) ask(ctx context.Context, t *trial) {
	p := s.lane.publisher
	session := t.items[0].session
	every := askEvery
	if p.config.StallAfter > 0 {
		every = min(every, p.config.StallAfter/4) // an answer shows that this leader gets on
	}
	if !t.asked.IsZero() && time.Since(t.asked) < every {
		return
	}
	w := p.witnesses.find(session)
	own := w != nil && w.session == session
	if taken := p.taken.Load(); !own && taken > max(t.held.passed, t.taken) {
		t.held.proof, t.taken, t.asked = otherSession, taken, time.Now()
		return
	}
	if w == nil {
		return
	}
	if !own {
		held := s.lane.dispatcher.hold(w.session)
		if held == nil {
			return // something of it is under way, and shows as much
		}
		defer s.lane.dispatcher.release(held)
		if p.witnesses.find(w.session) != w {
			return // something else was taken
		}
	}
	t.asked = time.Now()
	err := p.fenced(ctx, func(ctx context.Context) error { return p.broker.SendApart(ctx, w.batch) })
	switch {
	case err == nil && own:
		t.held.proof = sameSession
	case err == nil:
		t.held.proof = otherSession
	case own && (errors.Is(err, broker.ErrObjection) || errors.Is(err, broker.ErrRefused)):
		t.held.acquit()
	default:
		t.held.proof = noProof
	}
	if err == nil {
		t.taken = p.taken.Add(1)
		p.progress.Add(1)
	}
}
