package leader

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// latencies are those of Blob storage on a bad day, by the share of slower requests: the rarer, the
// heavier the tail.
var latencies = []struct {
	slower float64
	takes  time.Duration
}{
	{1, 3 * time.Millisecond},
	{0.5, 8 * time.Millisecond},
	{0.01, 120 * time.Millisecond},
	{0.0001, 2 * time.Second},
	{0.000001, 20 * time.Second},
}

// latency returns a random duration of a request, interpolated between two lines of the table on
// logarithmic scales.
func latency(random *rand.Rand) time.Duration {
	u := 1 - random.Float64() // never 0
	for i := 1; i < len(latencies); i++ {
		if u < latencies[i].slower && i < len(latencies)-1 {
			continue
		}
		a, b := latencies[i-1], latencies[i]
		u = max(u, b.slower)
		part := math.Log(a.slower/u) / math.Log(a.slower/b.slower)
		return time.Duration(float64(a.takes) * math.Pow(float64(b.takes)/float64(a.takes), part))
	}
	panic("the table has no end")
}

// slowly delays a request on the way to storage or back by a multiple of a bad day's latency, at
// most 20 s, and ends with its context.
func slowly(seed uint64, times float64) fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0xb10b))
	return func(ctx context.Context, _ string) error {
		mu.Lock()
		takes := min(times*float64(latency(random)), float64(20*time.Second))
		mu.Unlock()
		return retry.Sleep(ctx, time.Duration(takes/2))
	}
}

// Slow storage alone never costs a leader its term, with the producer's default times. The README's
// figure is from ELECTION_HOURS=100.
func TestG4SlowStorageCostsNoLeadership(t *testing.T) {
	electSlowly(t, defaultTimes, 0, 1, hours(t, 12), inMemory())
}

var defaultTimes = Times{time.Second, 2500 * time.Millisecond, 4 * time.Second, 500 * time.Millisecond}

// Nor does a slow store whose lease does not expire, such as MongoDB.
func TestG4ASlowStoreCostsNoLeadership(t *testing.T) {
	const part = 250 // hours, so that each ends in time
	for from := 0; from < hours(t, 4); from += part {
		t.Run(fmt.Sprintf("from hour %d", from), func(t *testing.T) {
			objects := &storetest.Memory{}
			electSlowly(t, defaultTimes, uint64(from), 1, min(part, hours(t, 4)-from), func(there, back fault) leasedRecords {
				return checkpoint.New(slowStore{objects, there, back}, testConfig("").Stream)
			})
		})
	}
}

// slowStore is a store whose requests are delayed on the way there and back.
type slowStore struct {
	*storetest.Memory
	there, back fault
}

// Get implements [store.Store].
func (s slowStore) Get(ctx context.Context, name string) (store.Object, error) {
	if err := s.there(ctx, name); err != nil {
		return store.Object{}, err
	}
	found, err := s.Memory.Get(ctx, name)
	return found, cmp.Or(s.back(ctx, name), err)
}

// Put implements [store.Store].
func (s slowStore) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	if err := s.there(ctx, name); err != nil {
		return "", err
	}
	next, err := s.Memory.Put(ctx, name, data, tag)
	return next, cmp.Or(s.back(ctx, name), err)
}

// The doctor's shortest times are sufficient for storage of which one request in a hundred takes as
// long, and the others take longer still, as on a bad day.
func TestG4TheShortestTimesAreSufficient(t *testing.T) {
	for _, times := range []float64{0.25, 1, 2, 4} {
		t.Run(fmt.Sprintf("%g", times), func(t *testing.T) {
			oneInAHundred := time.Duration(times * float64(120*time.Millisecond))
			electSlowly(t, TimesFor(oneInAHundred), 0, times, hours(t, 1), inMemory())
		})
	}
}

func hours(t *testing.T, usually int) int {
	t.Helper()
	set := os.Getenv("ELECTION_HOURS")
	if set == "" {
		return usually
	}
	hours, err := strconv.Atoi(set)
	require.NoError(t, err)
	return hours
}

// inMemory opens views of one checkpoint in memory.
func inMemory() func(there, back fault) leasedRecords {
	m := &memory{}
	return func(there, back fault) leasedRecords {
		v := m.view()
		v.set(there, back)
		return v
	}
}

// electSlowly runs an election of three members for some hours, in virtual time, over slow storage.
// Only the first member may lead. open opens the checkpoint of one member, with the delays there
// and back.
func electSlowly(t *testing.T, times Times, seed uint64, slower float64, hours int, open func(there, back fault) leasedRecords) {
	t.Helper()
	virtualtime.Test(t, func(t *testing.T) {
		h := newHistory()
		var members []*member
		for i, name := range []string{"a", "b", "c"} {
			config := testConfig(name)
			config.HeartbeatInterval, config.FenceAfter = times.Heartbeat, times.Fence
			config.TakeoverAfter, config.StandbyPoll = times.Takeover, times.Poll
			slow := open(slowly(seed+uint64(2*i), slower), slowly(seed+uint64(2*i+1), slower))
			members = append(members, run(t, slow, config, h.work(name)))
			if i == 0 {
				<-h.begun
			}
		}
		time.Sleep(time.Duration(hours) * time.Hour) // virtual
		t.Logf("%d hours: %d terms", hours, len(h.tenures))
		for _, tenure := range h.tenures[1:] {
			t.Logf("epoch %d of %s began after %s", tenure.epoch, tenure.instance, tenure.began.Sub(h.tenures[0].began))
		}
		require.Len(t, h.tenures, 1, "false take-overs")
		for _, e := range members {
			e.leave(t)
		}
	})
}
