package state

import "time"

// LeaseState is one of the five states of a lease [lease].
type LeaseState string

// The states, as they are written in x-ms-lease-state.
const (
	Available LeaseState = "available"
	Leased    LeaseState = "leased"
	Expired   LeaseState = "expired"
	Breaking  LeaseState = "breaking"
	Broken    LeaseState = "broken"
)

// Bounds of a lease duration and of a break period, in seconds [lease].
const (
	MinLeaseSeconds = 15
	MaxLeaseSeconds = 60
	MaxBreakSeconds = 60
	// Infinite is the duration of a lease that never expires.
	Infinite = -1
)

// Lease is the lease of one blob. The zero value is an available lease. It is
// not safe for concurrent use: the account's mutex guards it.
//
// Expiry and the end of a break are not events: every method takes now and the
// state follows from it, so that nothing runs in the background.
type Lease struct {
	id string
	// stored is never Expired: that one is Leased with until in the past.
	stored  LeaseState
	seconds int // of the last acquire; Infinite for ever
	until   time.Time
}

// State returns the lease's state at now.
func (l *Lease) State(now time.Time) LeaseState {
	switch l.stored {
	case Leased:
		if l.seconds != Infinite && !now.Before(l.until) {
			return Expired
		}
		return Leased
	case Breaking:
		if !now.Before(l.until) {
			return Broken
		}
		return Breaking
	case Broken:
		return Broken
	case Available, Expired:
	}
	return Available
}

// Locked reports whether a write needs the lease id at now: x-ms-lease-status.
func (l *Lease) Locked(now time.Time) bool {
	s := l.State(now)
	return s == Leased || s == Breaking
}

// Infinite reports whether the lease held at now never expires.
func (l *Lease) Infinite() bool { return l.seconds == Infinite }

// Acquire takes the lease for seconds under the id, which must not be empty.
// Re-acquiring with the id that holds it starts the (new) duration again.
func (l *Lease) Acquire(now time.Time, seconds int, id string) error {
	switch state := l.State(now); {
	case state == Leased && id != l.id:
		return ErrLeaseAlreadyPresent
	case state == Breaking && id != l.id:
		return ErrLeaseAlreadyPresent
	case state == Breaking:
		return ErrLeaseBreakingNoAcquire
	}
	if seconds != Infinite && (seconds < MinLeaseSeconds || seconds > MaxLeaseSeconds) {
		return ErrInvalidLeaseDuration
	}
	l.id, l.stored, l.seconds = id, Leased, seconds
	l.until = now.Add(time.Duration(seconds) * time.Second)
	return nil
}

// Renew starts the lease's duration again. An expired lease can be renewed as long as no other
// client has acquired it or written to the blob [lease].
func (l *Lease) Renew(now time.Time, id string) error {
	state := l.State(now)
	if state == Available || id != l.id {
		return ErrLeaseMismatchLease
	}
	if state == Breaking || state == Broken {
		return ErrLeaseBrokenNoRenew
	}
	l.until = now.Add(time.Duration(l.seconds) * time.Second)
	return nil
}

// Change gives a held lease another id; its duration runs on. Naming the id it
// already has as the proposed one succeeds whatever id is, so that a client may
// repeat a change whose answer it lost [lease].
func (l *Lease) Change(now time.Time, id, proposed string) error {
	switch l.State(now) {
	case Leased:
		if id != l.id && proposed != l.id {
			return ErrLeaseMismatchLease
		}
		l.id = proposed
		return nil
	case Breaking:
		if id != l.id {
			return ErrLeaseMismatchLease
		}
		return ErrLeaseBreakingNoChange
	case Available, Expired, Broken:
	}
	return ErrLeaseNotPresentLease
}

// Release frees the lease at once, in whatever state its id is still known.
func (l *Lease) Release(now time.Time, id string) error {
	if l.State(now) == Available || id != l.id {
		return ErrLeaseMismatchLease
	}
	*l = Lease{}
	return nil
}

// Break ends the lease without its id and returns the whole seconds, rounded up, until another can
// be acquired. A negative period means that none was given: the lease then expires normally, and an
// infinite one breaks at once. A break never lengthens the remaining time. Breaking a broken lease
// is a success in every version since 2012-02-12: LeaseAlreadyBroken belongs to the ones before.
func (l *Lease) Break(now time.Time, period int) (int, error) {
	if period > MaxBreakSeconds {
		return 0, ErrInvalidBreakPeriod
	}
	end := now.Add(time.Duration(max(period, 0)) * time.Second)
	switch l.State(now) {
	case Available:
		return 0, ErrLeaseNotPresentLease
	case Leased:
		if l.seconds != Infinite && (period < 0 || l.until.Before(end)) {
			end = l.until
		}
	case Breaking:
		if period < 0 || l.until.Before(end) {
			end = l.until
		}
	case Expired, Broken:
		end = now
	}
	l.stored, l.until = Breaking, end
	if !now.Before(end) {
		l.stored = Broken
		return 0, nil
	}
	return int((end.Sub(now) + time.Second - 1) / time.Second), nil
}

// CheckWrite reports whether a write with the lease id ("" for none) is allowed.
func (l *Lease) CheckWrite(now time.Time, id string) error {
	if id == "" && l.Locked(now) {
		return ErrLeaseIDMissing
	}
	return l.CheckRead(now, id)
}

// CheckRead reports whether a read with the lease id ("" for none) is allowed: a read needs no id,
// but an id that is given must be the active one.
func (l *Lease) CheckRead(now time.Time, id string) error {
	switch {
	case id == "":
		return nil
	case l.Locked(now) && id != l.id:
		return ErrLeaseMismatchBlob
	case l.Locked(now):
		return nil
	case l.id == id:
		return ErrLeaseLost
	}
	return ErrLeaseNotPresentBlob
}

// Written records that the blob was modified: a lease that has expired or was broken is forgotten,
// and can no longer be renewed [lease].
func (l *Lease) Written(now time.Time) {
	if !l.Locked(now) {
		*l = Lease{}
	}
}
