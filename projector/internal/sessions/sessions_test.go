package sessions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
)

func TestRenewal(t *testing.T) {
	for remaining, every := range map[time.Duration]time.Duration{
		time.Minute:      20 * time.Second, // at most, because two clocks are involved
		30 * time.Second: 15 * time.Second,
		5 * time.Second:  2500 * time.Millisecond,
		0:                2500 * time.Millisecond, // the shortest lock of the service is 5 s
		-time.Hour:       2500 * time.Millisecond,
	} {
		require.Equal(t, every, renewal(remaining), "%s left", remaining)
	}
}

func TestASDKAcceptThatTimesOutFoundNoSession(t *testing.T) {
	require.True(t, timedOut(fmt.Errorf("accept: %w", context.DeadlineExceeded)))
	require.True(t, timedOut(&azservicebus.Error{Code: azservicebus.CodeTimeout}))
	require.False(t, timedOut(&azservicebus.Error{Code: azservicebus.CodeUnauthorizedAccess}))
	require.False(t, timedOut(context.Canceled))
	require.False(t, timedOut(errors.New("x")))
}

// pool returns a pool with so many workers that have sought a session for a minute.
func pool(free int) *Pool {
	p := New(Transport{}, Options{Idle: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	for range free {
		p.demand.seek(time.Now().Add(-time.Minute))
	}
	return p
}

func TestDemandIsMetWhenAWorkerFindsNoSession(t *testing.T) {
	d := demand{keep: 2 * time.Second}
	now := time.Now()
	require.False(t, d.met(now), "every worker has a session")
	first := d.seek(now)
	d.seek(now.Add(time.Second))
	require.False(t, d.met(now.Add(2*time.Second-1)), "it has only begun to look")
	require.True(t, d.met(now.Add(2*time.Second)))
	d.found(first)
	require.False(t, d.met(now.Add(2*time.Second)))
	require.True(t, d.met(now.Add(3*time.Second)), "the one that has looked longest counts")
}

func TestTheLongestIdleIsWokenFirst(t *testing.T) {
	p := pool(1)
	first, stopFirst, _ := p.idle(t.Context())
	second, stopSecond, _ := p.idle(t.Context())
	defer stopSecond()
	p.mu.Lock()
	p.wakeOldest()
	p.mu.Unlock()
	require.Error(t, first.Err())
	require.NoError(t, second.Err())
	stopFirst()
	stopFirst() // removing it twice does no harm
	p.mu.Lock()
	p.wakeOldest()
	p.wakeOldest()
	p.mu.Unlock()
	require.Error(t, second.Err())
}

func TestPeeksAreGivenUpOnlyWhenNoneEverWorked(t *testing.T) {
	never := &backlogEstimate{log: slog.New(slog.DiscardHandler)}
	for range maxPeekFailures {
		require.False(t, never.blind.Load())
		never.peeked(errors.New("no such operation"))
	}
	require.True(t, never.blind.Load())

	once := &backlogEstimate{log: slog.New(slog.DiscardHandler)}
	once.peeked(nil)
	for range 10 * maxPeekFailures {
		once.peeked(errors.New("connection lost"))
	}
	require.False(t, once.blind.Load())
}

// With its hands full a session waits for time alone. Once its context has ended it must not return
// empty-handed again and again.
func TestAWaitWithoutRoomReportsThatItsContextHasEnded(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(stopped)
	s := &Session{pool: pool(1), freed: make(chan struct{})}
	messages, err := s.ReceiveWithin(ctx, time.Hour, 0, false)
	require.ErrorIs(t, err, stopped)
	require.Empty(t, messages)
	require.Empty(t, s.pool.slots)
}
