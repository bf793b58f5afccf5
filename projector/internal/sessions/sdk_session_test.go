package sessions

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// A renewal begins when all that was under way has ended, and what comes later begins after it.
func TestARenewalExcludesOtherCalls(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		s := NewSDKSession(nil)
		began := time.Now()
		var calls []string
		use := func(name string, weight int64, takes time.Duration) {
			go func() {
				err := s.use(t.Context(), weight, func() error {
					calls = append(calls, fmt.Sprintf("%s from %s", name, time.Since(began)))
					time.Sleep(takes)
					return nil
				})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}()
			virtualtime.Wait()
		}
		use("settle 1", 1, 3*time.Second)
		use("settle 2", 1, 5*time.Second)
		use("renew", whole, time.Second)
		use("settle 3", 1, time.Second)
		time.Sleep(time.Minute)
		virtualtime.Wait()
		require.Equal(t, []string{"settle 1 from 0s", "settle 2 from 0s", "renew from 5s", "settle 3 from 6s"}, calls)
	})
}

func TestASessionIsBrokenAfterAFailure(t *testing.T) {
	s := NewSDKSession(nil)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.use(cancelled, 1, func() error { return cancelled.Err() }), context.Canceled)
	require.False(t, s.Broken(), "it was only given up")

	lost := errors.New("connection lost")
	require.ErrorIs(t, s.use(t.Context(), 1, func() error { return lost }), lost)
	require.True(t, s.Broken())
	require.ErrorIs(t, s.Renew(t.Context()), ErrBroken)
	_, err := s.ReceiveMessages(t.Context(), 1, nil)
	require.ErrorIs(t, err, ErrBroken)
}
