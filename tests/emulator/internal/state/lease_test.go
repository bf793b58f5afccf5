//go:build !race || go1.27

package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

const (
	idA = "11111111-1111-1111-1111-111111111111"
	idB = "22222222-2222-2222-2222-222222222222"
	idC = "33333333-3333-3333-3333-333333333333"
)

// start brings a lease of 30 s by idA into a state; breaking ends in 20 s.
var start = map[LeaseState]func(*Lease){
	Available: func(*Lease) {},
	Leased:    func(l *Lease) { _ = l.Acquire(time.Now(), 30, idA) },
	Expired:   func(l *Lease) { _ = l.Acquire(time.Now(), 30, idA); time.Sleep(30 * time.Second) },
	Breaking:  func(l *Lease) { _ = l.Acquire(time.Now(), 30, idA); _, _ = l.Break(time.Now(), 20) },
	Broken:    func(l *Lease) { _ = l.Acquire(time.Now(), 30, idA); _, _ = l.Break(time.Now(), 0) },
}

// TestLeaseTable is the two outcome tables of the Lease Blob page, whole: every
// operation in every state, with the error codes the service answers.
func TestLeaseTable(t *testing.T) {
	states := []LeaseState{Available, Leased, Breaking, Broken, Expired}
	type outcome struct {
		err  error
		next LeaseState
	}
	fails := func(err error) outcome { return outcome{err: err} }
	ok := func(next LeaseState) outcome { return outcome{next: next} }
	breakFor := func(period int) func(*Lease) error {
		return func(l *Lease) error { _, err := l.Break(time.Now(), period); return err }
	}
	table := []struct {
		name string
		do   func(*Lease) error
		want [5]outcome // in the order of states
	}{
		{
			"acquire A", func(l *Lease) error { return l.Acquire(time.Now(), 30, idA) },
			[5]outcome{ok(Leased), ok(Leased), fails(ErrLeaseBreakingNoAcquire), ok(Leased), ok(Leased)},
		},
		{
			"acquire B", func(l *Lease) error { return l.Acquire(time.Now(), 30, idB) },
			[5]outcome{ok(Leased), fails(ErrLeaseAlreadyPresent), fails(ErrLeaseAlreadyPresent), ok(Leased), ok(Leased)},
		},
		{
			"acquire too short", func(l *Lease) error { return l.Acquire(time.Now(), 14, idA) },
			[5]outcome{fails(ErrInvalidLeaseDuration), fails(ErrInvalidLeaseDuration), fails(ErrLeaseBreakingNoAcquire), fails(ErrInvalidLeaseDuration), fails(ErrInvalidLeaseDuration)},
		},
		{
			"break 0", breakFor(0),
			[5]outcome{fails(ErrLeaseNotPresentLease), ok(Broken), ok(Broken), ok(Broken), ok(Broken)},
		},
		{
			"break 5", breakFor(5),
			[5]outcome{fails(ErrLeaseNotPresentLease), ok(Breaking), ok(Breaking), ok(Broken), ok(Broken)},
		},
		{
			"break", breakFor(-1),
			[5]outcome{fails(ErrLeaseNotPresentLease), ok(Breaking), ok(Breaking), ok(Broken), ok(Broken)},
		},
		{
			"break 61", breakFor(61),
			[5]outcome{fails(ErrInvalidBreakPeriod), fails(ErrInvalidBreakPeriod), fails(ErrInvalidBreakPeriod), fails(ErrInvalidBreakPeriod), fails(ErrInvalidBreakPeriod)},
		},
		{
			"change A to B", func(l *Lease) error { return l.Change(time.Now(), idA, idB) },
			[5]outcome{fails(ErrLeaseNotPresentLease), ok(Leased), fails(ErrLeaseBreakingNoChange), fails(ErrLeaseNotPresentLease), fails(ErrLeaseNotPresentLease)},
		},
		{
			"change B to A", func(l *Lease) error { return l.Change(time.Now(), idB, idA) },
			[5]outcome{fails(ErrLeaseNotPresentLease), ok(Leased), fails(ErrLeaseMismatchLease), fails(ErrLeaseNotPresentLease), fails(ErrLeaseNotPresentLease)},
		},
		{
			"change B to C", func(l *Lease) error { return l.Change(time.Now(), idB, idC) },
			[5]outcome{fails(ErrLeaseNotPresentLease), fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease), fails(ErrLeaseNotPresentLease), fails(ErrLeaseNotPresentLease)},
		},
		{
			"renew A", func(l *Lease) error { return l.Renew(time.Now(), idA) },
			[5]outcome{fails(ErrLeaseMismatchLease), ok(Leased), fails(ErrLeaseBrokenNoRenew), fails(ErrLeaseBrokenNoRenew), ok(Leased)},
		},
		{
			"renew B", func(l *Lease) error { return l.Renew(time.Now(), idB) },
			[5]outcome{fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease)},
		},
		{
			"release A", func(l *Lease) error { return l.Release(time.Now(), idA) },
			[5]outcome{fails(ErrLeaseMismatchLease), ok(Available), ok(Available), ok(Available), ok(Available)},
		},
		{
			"release B", func(l *Lease) error { return l.Release(time.Now(), idB) },
			[5]outcome{fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease), fails(ErrLeaseMismatchLease)},
		},
		{
			"write A", func(l *Lease) error { return write(l, idA) },
			[5]outcome{fails(ErrLeaseNotPresentBlob), ok(Leased), ok(Breaking), fails(ErrLeaseLost), fails(ErrLeaseLost)},
		},
		{
			"write B", func(l *Lease) error { return write(l, idB) },
			[5]outcome{fails(ErrLeaseNotPresentBlob), fails(ErrLeaseMismatchBlob), fails(ErrLeaseMismatchBlob), fails(ErrLeaseNotPresentBlob), fails(ErrLeaseNotPresentBlob)},
		},
		{
			"write", func(l *Lease) error { return write(l, "") },
			[5]outcome{ok(Available), fails(ErrLeaseIDMissing), fails(ErrLeaseIDMissing), ok(Available), ok(Available)},
		},
		{
			"read A", func(l *Lease) error { return l.CheckRead(time.Now(), idA) },
			[5]outcome{fails(ErrLeaseNotPresentBlob), ok(Leased), ok(Breaking), fails(ErrLeaseLost), fails(ErrLeaseLost)},
		},
		{
			"read B", func(l *Lease) error { return l.CheckRead(time.Now(), idB) },
			[5]outcome{fails(ErrLeaseNotPresentBlob), fails(ErrLeaseMismatchBlob), fails(ErrLeaseMismatchBlob), fails(ErrLeaseNotPresentBlob), fails(ErrLeaseNotPresentBlob)},
		},
		{
			"read", func(l *Lease) error { return l.CheckRead(time.Now(), "") },
			[5]outcome{ok(Available), ok(Leased), ok(Breaking), ok(Broken), ok(Expired)},
		},
	}
	for _, row := range table {
		for i, from := range states {
			t.Run(row.name+" when "+string(from), func(t *testing.T) {
				virtualtime.Test(t, func(t *testing.T) {
					var l Lease
					start[from](&l)
					require.Equal(t, from, l.State(time.Now()))
					before := l
					err := row.do(&l)
					if row.want[i].err != nil {
						require.ErrorIs(t, err, row.want[i].err)
						require.Equal(t, before, l, "a refused operation changes nothing")
						return
					}
					require.NoError(t, err)
					require.Equal(t, row.want[i].next, l.State(time.Now()))
				})
			})
		}
	}
}

// write is a write as the account does it: the check, then the news of it.
func write(l *Lease, id string) error {
	if err := l.CheckWrite(time.Now(), id); err != nil {
		return err
	}
	l.Written(time.Now())
	return nil
}

// TestLeaseClock pins when a lease ends, to the nanosecond.
func TestLeaseClock(t *testing.T) {
	type step struct {
		after time.Duration
		do    func(*Lease) error // nil only checks
		state LeaseState
	}
	acquire := func(seconds int) func(*Lease) error {
		return func(l *Lease) error { return l.Acquire(time.Now(), seconds, idA) }
	}
	renew := func(l *Lease) error { return l.Renew(time.Now(), idA) }
	const s = time.Second
	for name, steps := range map[string][]step{
		"expires":                       {{0, acquire(15), Leased}, {15*s - 1, nil, Leased}, {1, nil, Expired}},
		"renewed":                       {{0, acquire(15), Leased}, {10 * s, renew, Leased}, {15*s - 1, nil, Leased}, {1, nil, Expired}},
		"renewed after expiry":          {{0, acquire(15), Leased}, {time.Hour, renew, Leased}, {15*s - 1, nil, Leased}, {1, nil, Expired}},
		"acquired again with new time":  {{0, acquire(60), Leased}, {0, acquire(15), Leased}, {15 * s, nil, Expired}},
		"infinite":                      {{0, acquire(Infinite), Leased}, {1000 * time.Hour, nil, Leased}},
		"infinite broken at once":       {{0, acquire(Infinite), Leased}, {0, breaks(-1, 0), Broken}},
		"infinite broken in time":       {{0, acquire(Infinite), Leased}, {0, breaks(60, 60), Breaking}, {60*s - 1, nil, Breaking}, {1, nil, Broken}},
		"break runs out with the lease": {{0, acquire(30), Leased}, {10 * s, breaks(-1, 20), Breaking}, {20*s - 1, nil, Breaking}, {1, nil, Broken}},
		"break never lengthens":         {{0, acquire(30), Leased}, {10 * s, breaks(60, 20), Breaking}, {20 * s, nil, Broken}},
		"second break shortens":         {{0, acquire(30), Leased}, {0, breaks(20, 20), Breaking}, {0, breaks(5, 5), Breaking}, {0, breaks(30, 5), Breaking}, {0, breaks(-1, 5), Breaking}, {5 * s, nil, Broken}},
		"seconds left are rounded up":   {{0, acquire(30), Leased}, {10*s + 1, breaks(-1, 20), Breaking}},
	} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				var l Lease
				for i, step := range steps {
					time.Sleep(step.after)
					if step.do != nil {
						require.NoError(t, step.do(&l), "step %d", i)
					}
					require.Equal(t, step.state, l.State(time.Now()), "step %d", i)
				}
			})
		})
	}
}

// breaks breaks and wants exactly so many seconds to be left.
func breaks(period, want int) func(*Lease) error {
	return func(l *Lease) error {
		got, err := l.Break(time.Now(), period)
		if err == nil && got != want {
			return fmt.Errorf("break answered %d seconds, not %d", got, want)
		}
		return err
	}
}
