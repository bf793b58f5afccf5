package leader

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func TestADeletedCheckpointIsNotBegunAnew(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		<-h.begun
		time.Sleep(3 * time.Second)
		m.mu.Lock()
		m.exists, m.holder = false, ""
		m.mu.Unlock()
		require.ErrorIs(t, <-a.done, ErrVanished)
		require.False(t, m.exists)
	})
}

// G6: nor by a process that has never seen it: the mark says that the stream has had a leader.
func TestG6ADeletedCheckpointIsNotBegunAnewAfterARestart(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		<-h.begun
		a.leave(t)
		require.True(t, m.marked)
		m.mu.Lock()
		m.exists = false
		m.mu.Unlock()
		b := join(t, m, h, testConfig("b"))
		require.ErrorIs(t, <-b.done, checkpoint.ErrGone)
		require.False(t, m.exists)
	})
}

// The mark is there before anything can have been published: who cannot make it does not lead.
func TestG6NobodyLeadsAStreamThatCannotBeMarked(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		ctx, cancel := context.WithCancel(t.Context())
		v := m.view()
		v.set(func(_ context.Context, op string) error {
			if op == "mark" {
				return errAway
			}
			return nil
		}, nil)
		done := make(chan error, 1)
		go func() { done <- New(testConfig("a"), v, v, slog.New(slog.DiscardHandler)).Run(ctx, h.work("a")) }()
		time.Sleep(30 * time.Second) // virtual
		virtualtime.Wait()           // a try that began at this very moment is over
		m.mu.Lock()
		writes, leased := m.writes, m.leased()
		m.mu.Unlock() // a check that fails must not keep it
		require.Empty(t, writes)
		require.False(t, leased, "the lease is given back each time")
		cancel()
		require.NoError(t, <-done)
	})
}
