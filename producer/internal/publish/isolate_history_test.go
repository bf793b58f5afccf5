package publish

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
)

func TestFailureHistoryDecides(t *testing.T) {
	objection := fmt.Errorf("%w: %w", broker.ErrUnknown, broker.ErrObjection)
	final := fmt.Errorf("%w: %w", broker.ErrUnknown, broker.ErrPermanentObjection)
	const after = 5 * time.Minute
	for _, c := range []struct {
		what                                string
		errs                                []error
		passed                              int64 // batches of others acknowledged since the first attempt failed
		lasts                               time.Duration
		apart, divides, questions, convicts bool // once there is a proof
	}{
		{what: "nothing failed"},
		{"accepted", []error{nil}, 9, after, false, false, false, false},
		{"the broker is busy", []error{broker.ErrBusy, broker.ErrBusy, broker.ErrBusy, broker.ErrBusy, broker.ErrBusy, broker.ErrBusy}, 9, after, false, false, false, false},
		{"no connection", []error{errSend, errSend, errSend, errSend, errSend, errSend}, 9, after, false, false, false, false},
		{"the link was ended once", []error{objection}, 9, after, false, true, false, false},
		{"the link was ended three times", []error{objection, objection, objection}, 0, after, true, true, false, false},
		{"the network fails", []error{broker.ErrUnknown, broker.ErrUnknown, broker.ErrUnknown, broker.ErrUnknown, broker.ErrUnknown, broker.ErrUnknown}, 0, after, false, false, false, false},
		{"it fails and others pass", []error{broker.ErrUnknown, broker.ErrTimedOut, broker.ErrUnknown, broker.ErrUnknown, broker.ErrUnknown}, 1, after, true, true, false, false},
		{"objections for a while", []error{objection, objection, objection, objection, objection}, 1, after - 1, true, true, true, false},
		{"objections for long", []error{objection, objection, objection, objection, objection}, 0, after, true, true, true, true},
		{"for what was sent", []error{final, final, final, final, final}, 0, 0, true, true, true, true},
		{"for what was sent, and then otherwise", []error{final, final, final, final, objection}, 0, 0, true, true, true, false},
		{"rejected for good", []error{broker.ErrRefused}, 0, 0, false, true, true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			var s failureHistory
			const before = 100
			begun := time.Now()
			for _, err := range c.errs {
				s.record(err, before, begun)
			}
			now := before + c.passed
			require.Equal(t, []bool{c.apart, c.divides, c.questions}, []bool{s.shouldIsolate(now), s.shouldSplit(now), s.isSuspect()})
			require.False(t, s.isPoison(begun.Add(c.lasts), after), "without a proof")
			s.proof = sameSession
			require.Equal(t, c.convicts, s.isPoison(begun.Add(c.lasts), after))
		})
	}
	require.NotErrorIs(t, broker.ErrObjection, broker.ErrUnknown)
	require.False(t, errors.Is(errSuspect, broker.ErrRefused))
}
