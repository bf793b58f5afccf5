package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// held are sessions that a replay keeps from the projectors.
type held struct {
	sessions map[string]*sessions.SDKSession
	failed   map[string]error // why a session is not held
	releases []func()
}

func (h *held) release() {
	for _, f := range h.releases {
		f()
	}
}

// err returns why not all sessions of an aggregate are held.
func (h *held) err(a apply.Aggregate) error {
	for _, name := range sessionsOf(a) {
		if err := h.failed[name]; err != nil {
			return err
		}
	}
	return nil
}

// of returns the sessions of an aggregate.
func (h *held) of(a apply.Aggregate) map[string]*sessions.SDKSession {
	kept := make(map[string]*sessions.SDKSession)
	for _, name := range sessionsOf(a) {
		kept[name] = h.sessions[name]
	}
	return kept
}

// sessionsOf returns the sessions in which events of a parked aggregate were set aside: none if a
// person parked it, because of no event.
func sessionsOf(a apply.Aggregate) (names []string) {
	for _, name := range append([]string{a.Session}, a.Sessions...) {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// hold takes the sessions in which events of parked aggregates were set aside, and keeps them until
// release is called. It sets each aggregate's record to what it was at some moment before which no
// session's former holder could still dead-letter an event that the record does not count: the
// records are read first, then it is proved that the sessions are held. Errors, for each aggregate:
// [ErrBusy], [apply.ErrNotParked].
func (p *Replayer) hold(ctx context.Context, all []*task) *held {
	h := &held{sessions: make(map[string]*sessions.SDKSession), failed: make(map[string]error)}
	for {
		var names []string
		wanted := make(map[string]bool)
		for _, t := range all {
			for _, name := range sessionsOf(t.a) {
				if t.err == nil && !wanted[name] && h.sessions[name] == nil && h.failed[name] == nil {
					wanted[name] = true
					names = append(names, name)
				}
			}
		}
		if len(names) > 0 {
			p.take(ctx, h, names)
		}
		for _, t := range all {
			if t.err == nil {
				t.a, t.err = p.Applier.Parked(ctx, t.a.Name)
			}
		}
		if len(names) == 0 {
			break
		}
	}
	for name, session := range h.sessions {
		if err := p.proveHeld(ctx, session); err != nil {
			h.failed[name] = err
		}
	}
	for _, t := range all {
		if t.err == nil {
			t.err = h.err(t.a)
		}
	}
	return h
}

// take takes sessions. It waits for those that projectors hold, for all of them together no longer
// than Wait.
func (p *Replayer) take(ctx context.Context, h *held, names []string) {
	waiting, cancel := context.WithTimeout(ctx, p.Wait)
	defer cancel()
	backoff := retry.Backoff{Max: 500 * time.Millisecond}
	for {
		var busy []string
		for _, name := range names {
			receiver, err := p.accept(ctx, name)
			switch refused, ok := errors.AsType[*amqp.Error](err); {
			case err == nil:
				h.sessions[name] = sessions.NewSDKSession(receiver)
				h.releases = append(h.releases, p.renewUntilReleased(ctx, h.sessions[name]))
			case ok && refused.Condition == servicebus.CondSessionCannotBeLocked:
				busy = append(busy, name)
			default:
				h.failed[name] = err
			}
		}
		if names = busy; len(names) == 0 || backoff.Wait(waiting) != nil {
			break
		}
	}
	for _, name := range names {
		h.failed[name] = context.Cause(ctx)
		if ctx.Err() == nil {
			h.failed[name] = fmt.Errorf("%w %s, and did not release it in %s: it does so when no more messages arrive for it; while one of them cannot be "+
				"applied, another projector may take it at once; wait longer (--wait), or stop the projectors, run the command again, and start them", ErrBusy, name, p.Wait)
		}
	}
}
