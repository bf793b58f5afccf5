package publish

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
)

// probe is the message of a session that was acknowledged last. While a later message of the session is suspect, it is sent once
// more, which shows whether Service Bus takes that session's messages: the broker drops the repeat by its MessageId, and if it has
// forgotten that, position guards do. It is never sent behind a later acknowledged message of its session.
type probe struct {
	session string
	batch   broker.Batch
	size    int64
}

// probes are the witnesses of the sessions that were acknowledged last, as far as a bound on bytes allows. It is safe for
// concurrent use.
type probes struct {
	maxBytes int64 // bytes

	mu        sync.Mutex
	bySession map[string]*list.Element // guarded by mu
	recent    *list.List               // of *witness, the latest in front; guarded by mu
	size      int64                    // guarded by mu
}

// probeOverhead is what a witness costs besides its message, about.
const probeOverhead = 512

func newProbes(most int64) *probes {
	return &probes{maxBytes: most, bySession: map[string]*list.Element{}, recent: list.New()}
}

// set makes the n-th message of a batch the witness of a session. A message that is too large to be kept leaves the session without.
func (p *probes) set(session string, b broker.Batch, n int) {
	one, size := b.Extract(n)
	next := &probe{session, one, int64(size) + probeOverhead}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(p.bySession[session])
	if one == nil || next.size > p.maxBytes {
		return
	}
	p.bySession[session] = p.recent.PushFront(next)
	for p.size += next.size; p.size > p.maxBytes; {
		p.remove(p.recent.Back())
	}
}

// remove forgets a witness; the caller holds mu.
func (p *probes) remove(e *list.Element) {
	if e == nil {
		return
	}
	old := p.recent.Remove(e).(*probe)
	delete(p.bySession, old.session)
	p.size -= old.size
}

// find returns the witness of a session, else the latest of any; nil if there is none at all.
func (p *probes) find(session string) *probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.bySession[session]
	if e == nil {
		e = p.recent.Front()
	}
	if e == nil {
		return nil
	}
	return e.Value.(*probe)
}

// rememberProbes makes the last message of each session of an acknowledged load its witness.
func (p *Publisher) rememberProbes(acknowledged loadedBatch) {
	items := acknowledged.items
	for n, i := range items {
		if n == len(items)-1 || items[n+1].session != i.session {
			p.probes.set(i.session, acknowledged.batch, n)
		}
	}
}

// probeInterval is the time between two repeats of a witness for one suspect message.
const probeInterval = 15 * time.Second

// resendProbe looks for a proof that Service Bus takes other messages than the suspect one of a trial: its session's witness is sent once
// more. If that is objected to, it is not the message. For a session without a witness, what other sessions had acknowledged since it
// was last asked is the proof, or else the latest witness of any session. Asking goes on for as long as the message is suspect: in a
// stream in which all else is published it is the only progress, without which the leader would step down before REFUSED_AFTER.
func (s *isolator) resendProbe(ctx context.Context, t *part) {
	p := s.lane.publisher
	session := t.items[0].session
	every := probeInterval
	if p.config.StallAfter > 0 {
		every = min(every, p.config.StallAfter/4) // an answer shows that this leader gets on
	}
	if !t.probedAt.IsZero() && time.Since(t.probedAt) < every {
		return
	}
	probe := p.probes.find(session)
	own := probe != nil && probe.session == session
	if taken := p.acknowledgements.Load(); !own && taken > max(t.history.acksAtFirst, t.acksAtProbe) {
		t.history.proof, t.acksAtProbe, t.probedAt = otherSession, taken, time.Now()
		return
	}
	if probe == nil {
		return
	}
	if !own {
		lease := s.lane.dispatcher.leaseEmpty(probe.session)
		if lease == nil {
			return // something of it is under way, and shows as much
		}
		defer s.lane.dispatcher.release(lease)
		if p.probes.find(probe.session) != probe {
			return // something else was taken
		}
	}
	t.probedAt = time.Now()
	err := p.withFence(ctx, func(ctx context.Context) error { return p.broker.SendIsolated(ctx, probe.batch) })
	switch {
	case err == nil && own:
		t.history.proof = sameSession
	case err == nil:
		t.history.proof = otherSession
	case own && (errors.Is(err, broker.ErrObjection) || errors.Is(err, broker.ErrRefused)):
		t.history.reset()
	default:
		t.history.proof = noProof
	}
	if err == nil {
		t.acksAtProbe = p.acknowledgements.Add(1)
		p.progress.Add(1)
	}
}
