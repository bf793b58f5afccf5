package console

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/console"
)

const (
	// soak is the variable with how long the console is watched, such as 1h.
	soak = "CONSOLE_SOAK"
	// watchers is how many browsers watch it.
	watchers = 50
	// soakHeap is how much the heap may grow, in bytes: ten minutes of samples, 50 connections and
	// what is not collected yet.
	soakHeap = 8 << 20
	// soakShare is the most of one processor that 50 watchers may cost, their own side included.
	soakShare = 0.02
)

// A console that changes every second and is watched by 50 browsers keeps its memory, and costs
// little.
func TestWatchersForLong(t *testing.T) {
	if os.Getenv(soak) == "" {
		t.Skip(soak + " is not set")
	}
	lasts, err := time.ParseDuration(os.Getenv(soak))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	began := time.Now()
	page := console.New(console.Home{Title: "soak", View: func(context.Context) console.View {
		n := int64(time.Since(began).Seconds() * 100)
		return console.View{
			Streams:     []console.Stream{{Name: "shop.events", Leader: "producer-1", Epoch: n / 3000, Published: &n, InFlight: &n, LagMS: &n}},
			Queue:       &console.Queue{Entity: "events", Active: &n, DeadLettered: map[string]int64{"AggregateParked": n}},
			Projections: []console.Projection{{Name: "timeline", Applied: &n, Parked: &n, LagMS: &n}},
		}
	}})
	listener, err := console.Listen(ctx, "127.0.0.1:0")
	require.NoError(t, err)
	running.Go(func() { _ = page.Serve(ctx, listener, slog.New(slog.DiscardHandler)) }) // it ends with the test
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	first := heap()
	for i := range watchers {
		path := []string{"/", "/leadership", "/parked", "/streams", "/builds"}[i%5]
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/events?page=%s", listener.Addr(), path), http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		running.Go(func() {
			defer response.Body.Close()
			_, _ = io.Copy(io.Discard, response.Body) // it ends with the test
		})
	}
	start, used, most := time.Now(), processor(t), uint64(0)
	for tick := time.Tick(min(lasts/6, time.Minute)); time.Since(start) < lasts; <-tick {
		most = max(most, heap())
		require.Less(t, most, first+soakHeap, "after %s", time.Since(start))
	}
	share := float64(processor(t)-used) / float64(time.Since(start))
	t.Logf("%d watchers for %s: %.2f %% of a processor, heap at most %d KB above %d KB", watchers, lasts, 100*share, (int64(most)-int64(first))/1024, first/1024)
	require.Less(t, share, soakShare)
}

// processor returns the processor time that this process has used.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
