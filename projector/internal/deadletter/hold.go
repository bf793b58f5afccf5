package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
		for _, t := range all {
			for _, name := range sessionsOf(t.a) {
				if t.err == nil && h.sessions[name] == nil && h.failed[name] == nil && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		p.take(ctx, h, names)
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
		for _, name := range sessionsOf(t.a) {
			t.err = cmp.Or(t.err, h.failed[name])
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
