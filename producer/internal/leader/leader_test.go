package leader

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func testConfig(instance string) Config {
	return Config{
		Stream: "shop.events", Instance: instance, LeaseDuration: 15 * time.Second, RenewInterval: 5 * time.Second,
		HeartbeatInterval: time.Second, FenceAfter: 4 * time.Second, TakeoverAfter: 6 * time.Second,
		StandbyPoll: time.Second, StopTimeout: 10 * time.Second, Store: "Blob storage",
		Yield: func() time.Duration { return 0 }, Metrics: NewMetrics(prometheus.NewRegistry()),
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

// leasedRecords is a checkpoint.
type leasedRecords interface {
	Records
	Leases
}

type member struct {
	view *view // nil if the checkpoint is another one
	stop context.CancelFunc
	done chan error
}

func join(t *testing.T, m *memory, h *history, config Config) *member {
	t.Helper()
	return run(t, m.view(), config, h.work(config.Instance))
}

// run has an instance take part in the election, with this checkpoint and work.
func run(t *testing.T, c leasedRecords, config Config, work Work) *member {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	e := &member{stop: stop, done: make(chan error, 1)}
	e.view, _ = c.(*view)
	election := New(config, c, c, slog.New(slog.DiscardHandler))
	go func() { e.done <- election.Run(ctx, work) }()
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

func away(context.Context, string) error { return errAway }

// on returns a fault for the requests of one kind.
func on(op string, do fault) fault {
	return func(ctx context.Context, is string) error {
		if is != op {
			return nil
		}
		return do(ctx, is)
	}
}

func TestTheWorkIsJoinedBeforeTheLeaseIsReleased(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m := &memory{}
		v := m.view()
		begun := make(chan struct{})
		var joined bool
		v.set(on("release", func(context.Context, string) error {
			require.True(t, joined, "released under the work's feet")
			return nil
		}), nil)
		a := run(t, v, testConfig("a"), func(_ context.Context, term *Term) error {
			term.Track(func() checkpoint.Progress { return checkpoint.Progress{Position: "82FF", Published: 7} })
			close(begun)
			<-term.Stopping()
			time.Sleep(8 * time.Second) // draining: longer than the fence, shorter than StopTimeout
			joined = true
			return nil
		})
		<-begun
		a.leave(t)
		require.Equal(t, []string{"acquire", "release"}, m.log)
		require.Equal(t, "82FF", m.record.Progress.Position, "the last checkpoint has what was drained")
	})
}

func TestALeaderWhoseWorkDoesNotStopIsEndedInTime(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m := &memory{}
		begun := make(chan struct{})
		a := run(t, m.view(), testConfig("a"), func(ctx context.Context, _ *Term) error {
			close(begun)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		<-begun
		a.stop()
		stopped := time.Now()
		require.ErrorIs(t, <-a.done, ErrStopTimeout)
		require.Equal(t, 10*time.Second, time.Since(stopped))
		require.Equal(t, []string{"acquire", "release"}, m.log)
	})
}

// Storage may be unreachable for nearly as long as the fence, no matter when that begins between
// two heartbeats.
func TestALeaderSurvivesAnOutageShorterThanItsFence(t *testing.T) {
	for phase := range 10 {
		t.Run(fmt.Sprintf("phase %d", phase), func(t *testing.T) {
			keepsLeading(t, func(_ *memory, a *view) {
				time.Sleep(time.Duration(phase) * 100 * time.Millisecond) // virtual
				a.set(away, nil)
				time.Sleep(2700 * time.Millisecond) // virtual: the fence less one heartbeat, less a retry
				a.set(nil, nil)
			})
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
		m.holder = "another client"
		m.until = time.Now().Add(time.Hour)
		m.mu.Unlock()
		taken := time.Now()
		require.Same(t, first, <-h.finished)
		require.ErrorIs(t, first.cause, ErrLost)
		require.LessOrEqual(t, first.ended.Sub(taken), time.Second)
		a.leave(t)
	})
}

// A slow response proves only what was true when the request was made.
func TestG4TheFenceCountsFromBeforeTheRequest(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		first := <-h.begun
		var asked time.Time // when the last successful write was requested
		a.view.set(nil, nth("write", 1, func(context.Context, string) error {
			asked = time.Now()
			time.Sleep(1900 * time.Millisecond) // virtual: slow, and repeated meanwhile
			a.view.set(hang, nil)
			return nil
		}))
		require.Same(t, first, <-h.finished)
		require.Equal(t, 4*time.Second, first.ended.Sub(asked))
		a.view.set(nil, nil)
		a.leave(t)
	})
}

func TestAFencedLeadersWorkIsJoinedBeforeItsLeaseIsGivenBack(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m := &memory{}
		begun := make(chan struct{}, 1)
		var working atomic.Bool
		a := run(t, m.view(), testConfig("a"), func(ctx context.Context, _ *Term) error {
			working.Store(true)
			begun <- struct{}{}
			<-ctx.Done()
			time.Sleep(3 * time.Second) // virtual: a send that ignores its context
			working.Store(false)
			return nil
		})
		<-begun
		a.view.set(func(_ context.Context, op string) error {
			if op == "release" {
				require.False(t, working.Load(), "released under the work's feet")
				a.stop()
				return nil
			}
			return errAway
		}, nil)
		require.NoError(t, <-a.done)
		require.Equal(t, []string{"acquire", "release"}, m.log)
	})
}
