package publish

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// memoryRefusals records the names of the stored blobs by message.
type memoryRefusals struct {
	mu    sync.Mutex
	kept  []string // the bodies, which in the memory broker's messages are their names
	blobs int
}

func (r *memoryRefusals) Keep(_ context.Context, name, _ string, content []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blobs++
	if strings.HasSuffix(name, ".body") {
		r.kept = append(r.kept, string(content))
	}
	return nil
}

// G1, G2 and G6: any messages except the first may be refused, permanently or by an objection each
// time, and any other send may fail. Every other message arrives, in order within its session, and
// exactly the refused ones are parked, before the stream ends. The stream itself is the only proof
// that the broker accepts anything, even with a single session.
func TestG1G2G6AllButTheRefusedArriveInOrder(t *testing.T) {
	for _, scope := range []Scope{ScopeSession, ScopeMixed, ScopeAuto} {
		for seed := range uint64(60) {
			virtualtime.Test(t, func(t *testing.T) { separateAtRandom(t, scope, seed) })
		}
	}
}

func separateAtRandom(t *testing.T, scope Scope, seed uint64) {
	t.Helper()
	random, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	const events = 300
	sessions := 1 + random.IntN(7)
	poison := map[string]outcome{}
	versions := map[string]int{}
	names := make([]string, events)
	for n := range names {
		session := fmt.Sprintf("a%d", random.IntN(sessions))
		versions[session]++
		names[n] = fmt.Sprintf("%s/%d", session, versions[session])
		if n > 0 && random.IntN(40) == 0 {
			poison[names[n]] = []outcome{never, objecting}[random.IntN(2)]
		}
	}
	var mu sync.Mutex
	bus := &memoryBroker{capacity: 7, before: func(_ context.Context, messages []string) outcome {
		mu.Lock()
		drawn, delay := faults.IntN(20), time.Duration(faults.IntN(20))*time.Millisecond
		mu.Unlock()
		time.Sleep(delay) // the network's latency, in virtual time
		for _, m := range messages {
			if o, bad := poison[m]; bad {
				return o
			}
		}
		switch drawn {
		case 0:
			return unknown
		case 1:
			return refused
		case 2:
			return busy
		}
		return stored
	}}
	config, refusals := testConfig(), &memoryRefusals{}
	config.Scope, config.Refusals, config.StallAfter = scope, refusals, time.Hour
	p := start(config, bus, openFence{})
	done := make(chan error, 1)
	running, ended := context.WithCancelCause(t.Context())
	go func() {
		err := p.Run(running)
		ended(fmt.Errorf("the publisher ended: %w", err))
		done <- err
	}()
	for n, name := range names {
		session, _, _ := strings.Cut(name, "/")
		c, progress := event(session, versionOf(name), n)
		require.NoError(t, p.Publish(running, c, progress))
		time.Sleep(20 * time.Millisecond) // messages of others are acknowledged all the time
	}
	p.Close()
	require.NoError(t, <-done)

	require.EqualValues(t, events-len(poison), p.Progress().Published, "seed %d", seed)
	require.InDelta(t, len(poison), testutil.ToFloat64(p.metrics.refusals), 0)
	require.Equal(t, fmt.Sprintf("82%06X", events-1), p.Progress().Position)
	require.Len(t, refusals.kept, len(poison))
	require.Equal(t, 2*len(poison), refusals.blobs)
	for _, name := range refusals.kept {
		require.Contains(t, poison, name)
	}
	arrived := map[string]bool{}
	reached := map[string]int{}
	for _, m := range slices.Concat(bus.arrived...) {
		require.NotContains(t, poison, m)
		session, _, _ := strings.Cut(m, "/")
		if arrived[m] {
			continue // a repeat: the broker knows its message id
		}
		arrived[m] = true
		for v := reached[session] + 1; v < versionOf(m); v++ {
			require.Contains(t, poison, fmt.Sprintf("%s/%d", session, v), "seed %d: %s arrives, and this before it has not", seed, m)
		}
		require.Greater(t, versionOf(m), reached[session])
		reached[session] = versionOf(m)
	}
	require.Len(t, arrived, events-len(poison))
}

func versionOf(name string) (v int) {
	_, number, _ := strings.Cut(name, "/")
	_, _ = fmt.Sscan(number, &v)
	return v
}
