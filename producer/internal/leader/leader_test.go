package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func testConfig(instance string) Config {
	return Config{
		Stream: "shop.events", Instance: instance, LeaseDuration: 15 * time.Second, RenewInterval: 5 * time.Second,
		HeartbeatInterval: time.Second, FenceAfter: 4 * time.Second, TakeoverAfter: 6 * time.Second,
		StandbyPoll: time.Second, StopTimeout: 10 * time.Second, Store: "Blob storage",
	}
}

// tenure is one term as its work observed it.
type tenure struct {
	instance   string
	epoch      int64
	began      time.Time
	ended      time.Time // the moment from which the work sent nothing more
	cause      error
	start      checkpoint.Progress
	fenceEnded time.Time
}

// history collects tenures, in the order in which they began.
type history struct {
	mu       sync.Mutex
	tenures  []*tenure
	begun    chan *tenure
	finished chan *tenure
}

func newHistory() *history {
	return &history{begun: make(chan *tenure, 1000), finished: make(chan *tenure, 1000)}
}

// work leads until it is stopped or its leadership ends.
func (h *history) work(instance string) Work {
	return func(ctx context.Context, term *Term) error {
		t := &tenure{instance: instance, epoch: term.Epoch, began: time.Now(), start: term.Start}
		h.mu.Lock()
		h.tenures = append(h.tenures, t)
		h.mu.Unlock()
		h.begun <- t
		select {
		case <-ctx.Done():
			t.cause = context.Cause(ctx)
		case <-term.Stopping():
		}
		t.ended, t.fenceEnded = time.Now(), term.Deadline()
		h.finished <- t
		return t.cause
	}
}

type member struct {
	view *view
	stop context.CancelFunc
	done chan error
}

func join(t *testing.T, m *memory, h *history, config Config) *member {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	e := &member{view: m.view(), stop: stop, done: make(chan error, 1)}
	election := New(config, e.view, e.view, slog.New(slog.DiscardHandler))
	go func() { e.done <- election.Run(ctx, h.work(config.Instance)) }()
	return e
}

func (m *member) leave(t *testing.T) {
	t.Helper()
	m.stop()
	require.NoError(t, <-m.done)
}

func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestG4ASilentLeaderIsFencedBeforeItsSuccessorBegins(t *testing.T) {
	for name, silence := range map[string]func(context.Context, string) error{
		"requests hang":    hang,
		"requests refused": func(context.Context, string) error { return errAway },
	} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				m, h := &memory{}, newHistory()
				a := join(t, m, h, testConfig("a"))
				first := <-h.begun
				b := join(t, m, h, testConfig("b"))
				time.Sleep(10*time.Second + 300*time.Millisecond) // virtual: a leads undisturbed
				silent := time.Now()
				a.view.set(silence, nil)

				require.Same(t, first, <-h.finished)
				require.ErrorIs(t, first.cause, ErrFenced)
				require.LessOrEqual(t, first.ended.Sub(silent), 4*time.Second, "counted from the last write that succeeded")
				second := <-h.begun
				require.Equal(t, "b", second.instance)
				require.Equal(t, first.epoch+1, second.epoch)
				require.True(t, second.began.After(first.ended))
				require.LessOrEqual(t, second.began.Sub(silent), 8*time.Second, "takeover after 6 s, noticed within a poll")

				a.view.set(nil, nil)
				a.leave(t)
				b.leave(t)
			})
		})
	}
}

func TestAStoppedLeaderIsReplacedWithinOnePoll(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		<-h.begun
		b := join(t, m, h, testConfig("b"))
		time.Sleep(5500 * time.Millisecond)
		stopped := time.Now()
		a.leave(t)
		second := <-h.begun
		require.Equal(t, "b", second.instance)
		require.LessOrEqual(t, second.began.Sub(stopped), time.Second)
		b.leave(t)
	})
}

func TestTheWorkIsJoinedBeforeTheLeaseIsReleased(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m := &memory{}
		v := m.view()
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan struct{})
		var joined bool
		v.set(func(_ context.Context, op string) error {
			if op == "release" {
				require.True(t, joined, "released under the work's feet")
			}
			return nil
		}, nil)
		done := make(chan error, 1)
		go func() {
			done <- New(testConfig("a"), v, v, slog.New(slog.DiscardHandler)).Run(ctx, func(_ context.Context, term *Term) error {
				term.Track(func() checkpoint.Progress { return checkpoint.Progress{Position: "82FF", Published: 7} })
				close(begun)
				<-term.Stopping()
				time.Sleep(8 * time.Second) // draining: longer than the fence, shorter than StopTimeout
				joined = true
				return nil
			})
		}()
		<-begun
		stop()
		require.NoError(t, <-done)
		require.Equal(t, []string{"acquire", "release"}, m.log)
		require.Equal(t, "82FF", m.record.Progress.Position, "the last checkpoint says what was drained")
	})
}

func TestAWorkThatDoesNotStopIsEndedInTime(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m := &memory{}
		v := m.view()
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- New(testConfig("a"), v, v, slog.New(slog.DiscardHandler)).Run(ctx, func(ctx context.Context, _ *Term) error {
				close(begun)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-begun
		stop()
		stopped := time.Now()
		require.ErrorIs(t, <-done, ErrStopTimeout)
		require.Equal(t, 10*time.Second, time.Since(stopped))
		require.Equal(t, []string{"acquire", "release"}, m.log)
	})
}

// A write whose response is lost has changed the ETag: the leader must recognise its own write and
// not take it for another leader's.
func TestALeaderWithLostResponsesKeepsLeading(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		first := <-h.begun
		n := 0
		a.view.set(nil, func(_ context.Context, op string) error {
			if op == "write" {
				if n++; n%3 == 0 {
					return errAway
				}
			}
			return nil
		})
		time.Sleep(time.Minute)
		require.Empty(t, h.finished)
		a.view.set(nil, nil)
		a.leave(t)
		require.Equal(t, first.epoch, m.record.Epoch)
	})
}

// Storage may be unreachable for nearly as long as the fence, no matter when that begins between
// two heartbeats.
func TestALeaderSurvivesAnOutageShorterThanItsFence(t *testing.T) {
	for phase := range 10 {
		virtualtime.Test(t, func(t *testing.T) {
			m, h := &memory{}, newHistory()
			a := join(t, m, h, testConfig("a"))
			<-h.begun
			time.Sleep(5*time.Second + time.Duration(phase)*100*time.Millisecond) // virtual
			a.view.set(func(context.Context, string) error { return errAway }, nil)
			time.Sleep(2700 * time.Millisecond) // virtual: the fence less one heartbeat, less a retry
			a.view.set(nil, nil)
			time.Sleep(10 * time.Second) // virtual
			require.Empty(t, h.finished, "phase %d", phase)
			a.leave(t)
			require.EqualValues(t, 1, m.record.Epoch)
		})
	}
}

func TestG4ALeaderWhoseLeaseWasTakenStopsAtItsNextWrite(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		first := <-h.begun
		time.Sleep(500 * time.Millisecond)
		m.mu.Lock()
		m.holder = "somebody else"
		m.until = time.Now().Add(time.Hour)
		m.mu.Unlock()
		taken := time.Now()
		require.Same(t, first, <-h.finished)
		require.ErrorIs(t, first.cause, ErrLost)
		require.LessOrEqual(t, first.ended.Sub(taken), time.Second)
		a.leave(t)
	})
}

func TestExpiryNeverBreaksALease(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		expiry := testConfig("a")
		expiry.TakeoverByExpiry = true
		a := join(t, m, h, expiry)
		<-h.begun
		b := join(t, m, h, func() Config { c := testConfig("b"); c.TakeoverByExpiry = true; return c }())
		time.Sleep(2 * time.Second)
		a.view.set(hang, nil)
		silent := time.Now()
		second := <-h.begun
		require.Equal(t, "b", second.instance)
		require.Greater(t, second.began.Sub(silent), 10*time.Second)
		require.LessOrEqual(t, second.began.Sub(silent), 17*time.Second)
		require.NotContains(t, m.log, "break")
		a.view.set(nil, nil)
		a.leave(t)
		b.leave(t)
	})
}

func TestAnUnreadableCheckpointIsAnError(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		v := m.view()
		v.set(func(context.Context, string) error { return fmt.Errorf("read: %w", checkpoint.ErrUnreadable) }, nil)
		err := New(testConfig("a"), v, v, slog.New(slog.DiscardHandler)).Run(ctx, h.work("a"))
		require.ErrorIs(t, err, checkpoint.ErrUnreadable)
		require.False(t, m.exists)
	})
}

func TestTheWorksOwnErrorEndsTheRunAndFreesTheLease(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m := &memory{}
		v := m.view()
		poison := errors.New("poison")
		err := New(testConfig("a"), v, v, slog.New(slog.DiscardHandler)).Run(t.Context(), func(context.Context, *Term) error { return poison })
		require.ErrorIs(t, err, poison)
		require.Equal(t, []string{"acquire", "release"}, m.log)
	})
}

func TestALeaderThatStepsDownLeavesRoomForAnother(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		ctx, stop := context.WithCancel(t.Context())
		v := m.view()
		done := make(chan error, 1)
		begun := make(chan struct{}, 10)
		go func() {
			done <- New(testConfig("a"), v, v, slog.New(slog.DiscardHandler)).Run(ctx, func(context.Context, *Term) error {
				begun <- struct{}{}
				time.Sleep(10 * time.Second) // virtual
				return fmt.Errorf("%w: no progress", ErrStepDown)
			})
		}()
		<-begun
		b := join(t, m, h, testConfig("b"))
		second := <-h.begun
		require.Equal(t, "b", second.instance)
		require.EqualValues(t, 2, second.epoch)
		stop()
		require.NoError(t, <-done)
		b.leave(t)
	})
}

// A slow response proves only what was true when the request was made.
func TestG4TheFenceCountsFromBeforeTheRequest(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		first := <-h.begun
		var asked time.Time // when the last successful write was requested
		a.view.set(nil, func(_ context.Context, op string) error {
			if op == "write" && asked.IsZero() {
				asked = time.Now()
				time.Sleep(1900 * time.Millisecond) // virtual: slow, and repeated meanwhile
				a.view.set(hang, nil)
			}
			return nil
		})
		require.Same(t, first, <-h.finished)
		require.Equal(t, 4*time.Second, first.ended.Sub(asked))
		a.view.set(nil, nil)
		a.leave(t)
	})
}

func TestAFencedLeadersWorkIsJoinedBeforeItsLeaseIsGivenBack(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m := &memory{}
		v := m.view()
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan struct{}, 1)
		var working atomic.Bool
		done := make(chan error, 1)
		go func() {
			done <- New(testConfig("a"), v, v, slog.New(slog.DiscardHandler)).Run(ctx, func(ctx context.Context, _ *Term) error {
				working.Store(true)
				begun <- struct{}{}
				<-ctx.Done()
				time.Sleep(3 * time.Second) // virtual: a send that ignores its context
				working.Store(false)
				return nil
			})
		}()
		<-begun
		v.set(func(ctx context.Context, op string) error {
			if op == "release" {
				require.False(t, working.Load(), "released under the work's feet")
				stop()
				return nil
			}
			return errAway
		}, nil)
		require.NoError(t, <-done)
		require.Equal(t, []string{"acquire", "release"}, m.log)
	})
}
