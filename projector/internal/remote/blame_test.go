package remote

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// An event is to blame for what failed with no other event only if another one has passed since;
// a program's deaths count twice before an event is tried alone, and twice alone.
func TestWhoIsToBlame(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	failure := func(k kind) *callError { return &callError{kind: k, err: errors.New("failed")} }
	reason := func(err error) string {
		if refused, ok := errors.AsType[refusal](err); ok {
			require.ErrorIs(t, err, projection.ErrPermanent)
			return refused.ParkReason()
		}
		require.NotErrorIs(t, err, projection.ErrPermanent)
		return ""
	}
	for name, test := range map[string]struct {
		kind   kind
		do     func(b *blame)
		reason string
	}{
		"nothing else passed": {invalid, func(b *blame) {
			b.pass(at(1), "other")
			b.fail(at(3), at(2), failure(invalid), false, "e")
		}, ""},
		"it failed once": {invalid, func(b *blame) {
			b.fail(at(3), at(2), failure(invalid), false, "e")
			b.pass(at(4), "other")
		}, ""},
		"another passed since": {invalid, func(b *blame) {
			b.fail(at(3), at(2), failure(invalid), false, "e")
			b.pass(at(4), "other")
			b.fail(at(5), at(5), failure(invalid), false, "e")
		}, reasonInvalid},
		"another passed since it failed with others": {invalid, func(b *blame) {
			b.fail(at(3), at(2), failure(invalid), false, "e", "other")
			b.pass(at(4), "other")
			b.fail(at(5), at(5), failure(invalid), false, "e")
			b.fail(at(6), at(6), failure(invalid), false, "e")
		}, reasonInvalid},
		"an answer was damaged once, after a time-out": {invalid, func(b *blame) {
			b.fail(at(3), at(2), failure(slow), false, "e")
			b.pass(at(4), "other")
			b.fail(at(5), at(5), failure(invalid), false, "e")
		}, ""},
		"an error of the program waits for UNDECIDED_AFTER": {broken, func(b *blame) {
			b.fail(at(3), at(2), failure(broken), false, "e")
			b.pass(at(4), "other")
		}, ""},
		"so does a time-out": {slow, func(b *blame) {
			b.fail(at(3), at(2), failure(slow), false, "e")
			b.pass(at(4), "other")
		}, ""},
		"deaths beside others": {lost, func(b *blame) {
			for n := range 9 {
				b.fail(at(n), at(n), failure(lost), false, "e", "other")
			}
			b.pass(at(10), "other")
		}, ""},
		"one death alone": {lost, func(b *blame) {
			b.fail(at(3), at(2), failure(lost), true, "e")
			b.pass(at(4), "other")
		}, ""},
		"two deaths alone": {lost, func(b *blame) {
			b.fail(at(3), at(2), failure(lost), true, "e")
			b.pass(at(4), "other")
			b.fail(at(5), at(5), failure(lost), true, "e")
		}, reasonEnded},
		"another passed at the instant at which the first call began": {lost, func(b *blame) {
			b.pass(at(2), "other")
			b.fail(at(3), at(2), failure(lost), true, "e")
			b.fail(at(5), at(5), failure(lost), true, "e")
		}, ""},
		"two deaths alone of a program that always dies": {lost, func(b *blame) {
			b.fail(at(3), at(2), failure(lost), true, "e")
			b.fail(at(5), at(5), failure(lost), true, "e")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := blame{troubles: make(map[string]*trouble)}
			test.do(&b)
			require.Equal(t, test.reason, reason(b.judge("e", failure(test.kind))))
		})
	}
}

func TestSuspects(t *testing.T) {
	b := blame{troubles: make(map[string]*trouble)}
	now := time.Unix(1, 0)
	died := &callError{kind: lost, err: errors.New("gone")}
	b.fail(now, now, died, false, "e", "f")
	require.False(t, b.suspect("e"))
	b.fail(now, now, died, false, "e")
	require.True(t, b.suspect("e"))
	require.False(t, b.suspect("f"))
	require.True(t, b.single("e"))
	b.pass(now, "e")
	require.False(t, b.suspect("e"), "it has passed")
	b.fail(now.Add(forgetAfter+time.Minute), now, died, false, "g")
	require.NotContains(t, b.troubles, "f", "it is asked for no longer")
}

func TestRetryAfter(t *testing.T) {
	require.Equal(t, 7*time.Second, retryAfter("7"))
	require.Equal(t, maxRetryAfter, retryAfter("3600"))
	require.Equal(t, maxRetryAfter, retryAfter("Wed, 21 Oct 2099 07:28:00 GMT"))
	require.Equal(t, time.Duration(0), retryAfter("-5"))
	require.Equal(t, defaultRetryAfter, retryAfter(""))
	require.Equal(t, defaultRetryAfter, retryAfter("soon"))
}
