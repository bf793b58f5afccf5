package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

func TestSteadyLatencyExcludesFailovers(t *testing.T) {
	t.Parallel()
	virtualtime.Test(t, func(t *testing.T) {
		r := history.NewRecorder()
		event := func(latency time.Duration) {
			r.Commit(history.Commit{Aggregate: "a", At: time.Now()})
			time.Sleep(latency) // virtual
			r.See("a", 1, time.Now())
		}
		event(10 * time.Millisecond)
		time.Sleep(time.Second)
		r.LeaderLost(time.Now())
		r.Commit(history.Commit{Aggregate: "b", At: time.Now()}) // visible only after the failover
		event(500 * time.Millisecond)
		time.Sleep(time.Second)
		r.Accept(history.Acceptance{MessageID: "m", Session: "a", Epoch: 2, At: time.Now()})
		time.Sleep(time.Second)
		event(20 * time.Millisecond) // before the end of the failover was noticed
		r.LeaderReplaced(1, time.Now())
		event(30 * time.Millisecond)
		r.See("b", 1, time.Now())

		require.InDelta(t, 2550, r.Latency().Max, 3)
		require.InDelta(t, 30, r.SteadyLatency().Max, 0.1)
		require.InDelta(t, 10, r.SteadyLatency().P50, 0.1)
	})
}

func TestRecorderCountsRecords(t *testing.T) {
	t.Parallel()
	virtualtime.Test(t, func(t *testing.T) {
		r := history.NewRecorder()
		start := time.Now()
		r.Commit(history.Commit{Aggregate: "a", Version: 1, At: start}, history.Commit{Aggregate: "a", Version: 2, At: start})
		time.Sleep(10 * time.Millisecond) // virtual
		r.Accept(history.Acceptance{MessageID: "m1", Session: "a", Position: "1", Epoch: 3, At: time.Now()})
		r.Observe(history.Observation{Aggregate: "a", Events: 1, Position: "1", At: time.Now()})
		time.Sleep(20 * time.Millisecond)
		r.Accept(history.Acceptance{MessageID: "m1", Session: "a", Position: "1", Epoch: 4, Duplicate: true, At: time.Now()})
		r.Accept(history.Acceptance{MessageID: "m2", Session: "a", Position: "2", Epoch: 4, At: time.Now()})
		r.Accept(history.Acceptance{MessageID: "m2", Session: "a", Position: "2", Epoch: 3, Duplicate: true, At: time.Now()})
		r.Accept(history.Acceptance{MessageID: "m2", Session: "a", Position: "2", Epoch: 4, At: time.Now()})
		r.Accept(history.Acceptance{MessageID: "m3", Stream: "another", Session: "a", Position: "1", Epoch: 2, At: time.Now()}) // not stale: it is of another stream
		r.Observe(history.Observation{Aggregate: "a", Events: 7, Position: "2", At: time.Now()})                                // five too many

		counts := r.Counts()
		require.Equal(t, history.Counts{
			Committed: 2, Published: 3, Duplicates: 2, Repeated: 1, Stale: 1, Visible: 2, Aggregates: 1, LastEpoch: 4,
			FirstCommit: start, LastVisible: start.Add(30 * time.Millisecond), LastMove: start.Add(30 * time.Millisecond),
		}, counts)
		latency := r.Latency()
		require.InDelta(t, 10, latency.P50, 0.1)
		require.InDelta(t, 30, latency.Max, 0.1)

		at, ok := r.FirstAfterEpoch(3)
		require.True(t, ok)
		require.Equal(t, start.Add(30*time.Millisecond), at)
		_, ok = r.FirstAfterEpoch(4)
		require.False(t, ok)
		require.Equal(t, 1, history.Count(history.Judge(r.History()), history.ErrDoubled))
	})
}
