package publish

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASuspicionGrows(t *testing.T) {
	objection := fmt.Errorf("%w: %w", errUnknown, errObjection)
	for _, c := range []struct {
		what                     string
		errs                     []error
		passed                   int64 // by others, since the first attempt failed
		apart, divides, convicts bool
	}{
		{what: "nothing failed"},
		{"accepted", []error{nil}, 9, false, false, false},
		{"the broker is busy", []error{errBusy, errBusy, errBusy, errBusy, errBusy, errBusy}, 9, false, false, false},
		{"no connection", []error{errSend, errSend, errSend, errSend, errSend, errSend}, 9, false, false, false},
		{"the link was ended once", []error{objection}, 9, false, true, false},
		{"the link was ended three times", []error{objection, objection, objection}, 0, true, true, false},
		{"the network fails", []error{errUnknown, errUnknown, errUnknown, errUnknown, errUnknown, errUnknown}, 0, false, false, false},
		{"it fails and others pass", []error{errUnknown, errCutShort, errUnknown, errUnknown, errUnknown}, 1, true, true, false},
		{"nothing passes, with reasons", []error{objection, objection, objection, objection, objection}, 0, true, true, false},
		{"others pass, with reasons", []error{objection, objection, objection, objection, objection}, 1, true, true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			var s suspicion
			const before = 100
			for _, err := range c.errs {
				s.add(err, before)
			}
			now := before + c.passed
			require.Equal(t, []bool{c.apart, c.divides, c.convicts}, []bool{s.apart(now), s.divides(now), s.convicts(now)})
		})
	}
	require.NotErrorIs(t, errObjection, errUnknown)
	require.False(t, errors.Is(errSuspect, ErrRefused))
}
