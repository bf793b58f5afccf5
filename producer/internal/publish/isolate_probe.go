package publish

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
)

// probe is the most recently acknowledged message of a session. While a later message of the
// session is suspect, the publisher resends the probe to find out whether Service Bus accepts
// messages of the session at all; duplicate detection, or else the position guard, drops it. A
// probe is never sent behind a later acknowledged message of its session.
type probe struct {
	session string
	batch   broker.Batch
	size    int64
}

// probes holds the probes of the sessions that were acknowledged most recently, up to a total size.
// It is safe for concurrent use.
type probes struct {
	maxBytes int64 // bytes

	mu        sync.Mutex
	bySession map[string]*list.Element // guarded by mu
	recent    *list.List               // of *probe, the most recent first; guarded by mu
	size      int64                    // guarded by mu
}

// probeOverhead is the approximate size of a probe in addition to its message.
const probeOverhead = 512

func newProbes(most int64) *probes {
	return &probes{maxBytes: most, bySession: map[string]*list.Element{}, recent: list.New()}
}

// set makes the n-th message of a batch the probe of a session. If the message is too large to be
// kept, the session has no probe.
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

// remove removes a probe. The caller holds mu.
func (p *probes) remove(e *list.Element) {
	if e == nil {
		return
	}
	old := p.recent.Remove(e).(*probe)
	delete(p.bySession, old.session)
	p.size -= old.size
}

// find returns the probe of a session, or the most recent probe of any session, or nil if there is
// none.
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

// rememberProbes makes the last message of each session of an acknowledged batch the probe of that
// session.
func (p *Publisher) rememberProbes(acknowledged loadedBatch) {
	items, next := acknowledged.items, 0
	for n, events := range acknowledged.events {
		next += events
		if session := items[next-1].session; next == len(items) || items[next].session != session {
			p.probes.set(session, acknowledged.batch, n)
		}
	}
}

// probeInterval is the time between two resends of a probe for one suspect message.
const probeInterval = 15 * time.Second

// resendProbe seeks proof that Service Bus accepts messages other than the suspect one: it
// resends the probe of the session. If the probe is objected to as well, the message is not the
// cause. For a session without a probe, the proof is any acknowledgement of another session since
// the last request, or else the most recent probe of any session. It continues for as long as the
// message is suspect: in a stream in which everything else is published, the probes are the only
// progress, and without progress the leader would step down before REFUSED_AFTER.
func (s *isolator) resendProbe(ctx context.Context, t *part) {
	p := s.lane.publisher
	session := t.items[0].session
	every := probeInterval
	if p.config.StallAfter > 0 {
		every = min(every, p.config.StallAfter/4) // an acknowledgement shows that this leader makes progress
	}
	if time.Since(t.probedAt) < every {
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
			return // the session has messages outstanding, whose acknowledgement is a proof as well
		}
		defer s.lane.dispatcher.release(lease)
		if p.probes.find(probe.session) != probe {
			return // another message was acknowledged meanwhile
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
		t.history = failureHistory{} // the previous message of the session is objected to as well
	default:
		t.history.proof = noProof
	}
	if err == nil {
		t.acksAtProbe = p.acknowledgements.Add(1)
		p.progress.Add(1)
	}
}
