package blob

import (
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// leaseBlob handles the five lease operations, which x-ms-lease-action selects.
func (s *Server) leaseBlob(r *request) error {
	cond, err := r.conditions()
	if err != nil {
		return err
	}
	act, err := r.leaseAction(cond.LeaseID)
	if err != nil {
		return err
	}
	b, err := s.account.WithLease(r.container, r.blob, cond, act.apply)
	if err != nil {
		return err
	}
	if act.id != "" {
		r.w.Header().Set("x-ms-lease-id", act.id)
	}
	if act.breaks {
		r.w.Header().Set("x-ms-lease-time", strconv.Itoa(act.left))
	}
	return r.written(act.status, b)
}

// leaseAction is one lease operation and its result.
type leaseAction struct {
	status int
	id     string // to answer
	breaks bool
	left   int // seconds that are left, after a break
	apply  func(*state.Lease, time.Time) error
}

// leaseAction reads the requested operation and its parameters.
func (r *request) leaseAction(id string) (*leaseAction, error) {
	action := r.Header.Get("x-ms-lease-action")
	proposed, err := r.leaseID("x-ms-proposed-lease-id")
	if err != nil {
		return nil, err
	}
	act := &leaseAction{status: http.StatusOK, id: id}
	if needsID := action == "renew" || action == "change" || action == "release"; needsID && id == "" {
		return nil, missing("x-ms-lease-id")
	}
	switch action {
	case "acquire":
		if r.Header.Get("x-ms-lease-duration") == "" {
			return nil, missing("x-ms-lease-duration")
		}
		seconds, err := r.seconds("x-ms-lease-duration", 0)
		if err != nil {
			return nil, err
		}
		if proposed == "" {
			proposed = uuid.NewString()
		}
		act.status, act.id = http.StatusCreated, proposed
		act.apply = func(l *state.Lease, now time.Time) error { return l.Acquire(now, seconds, proposed) }
	case "renew":
		act.apply = func(l *state.Lease, now time.Time) error { return l.Renew(now, id) }
	case "change":
		if proposed == "" {
			return nil, missing("x-ms-proposed-lease-id")
		}
		act.id = proposed
		act.apply = func(l *state.Lease, now time.Time) error { return l.Change(now, id, proposed) }
	case "release":
		act.id = ""
		act.apply = func(l *state.Lease, now time.Time) error { return l.Release(now, id) }
	case "break":
		period, err := r.seconds("x-ms-lease-break-period", -1)
		if err != nil {
			return nil, err
		}
		if period < 0 && r.Header.Get("x-ms-lease-break-period") != "" {
			return nil, state.ErrInvalidBreakPeriod
		}
		act.status, act.id, act.breaks = http.StatusAccepted, "", true
		act.apply = func(l *state.Lease, now time.Time) (err error) {
			act.left, err = l.Break(now, period)
			return err
		}
	default:
		return nil, badHeader("x-ms-lease-action", "is "+strconv.Quote(action)+", which is no lease action")
	}
	return act, nil
}

func missing(header string) error {
	return state.NewError(http.StatusBadRequest, "MissingRequiredHeader", "The header "+header+" is missing.")
}
