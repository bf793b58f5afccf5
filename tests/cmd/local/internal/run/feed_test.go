package run

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/report"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// commit records n events as inserted, accept n of them as taken by the broker.
func commit(r *runner, n int) {
	for i := range n {
		r.rec.Commit(history.Commit{Aggregate: "a", Version: int64(i), At: time.Now()})
	}
}

func accept(r *runner, n int) {
	for i := range n {
		r.rec.Accept(history.Acceptance{MessageID: string(rune('A' + i)), Session: "a", Epoch: 1})
	}
}

func TestEventsAreKeptBackForEachFailoverToCome(t *testing.T) {
	t.Parallel()
	plan, err := chaos.Parse("kill-leader@1s,term-leader@2s,kill-projector@3s")
	require.NoError(t, err)
	r := &runner{options: flags.Options{Chaos: plan}, rec: history.NewRecorder()}

	require.EqualValues(t, math.MaxInt64, r.allowed(0), "an endless load always has something to publish")
	require.EqualValues(t, 960, r.allowed(1000), "twenty for each of two failovers")
	require.EqualValues(t, 98, r.allowed(108), "a tenth of a small input, shared")
	require.EqualValues(t, 1, r.allowed(3), "never less than one each")

	commit(r, 3)
	accept(r, 2)
	r.failovers.begin(1)
	require.EqualValues(t, 1, r.allowed(3), "one is still on its way: no other is given out")
	accept(r, 3)
	require.EqualValues(t, 4, r.allowed(5), "the broker has all there is: one more")
	require.EqualValues(t, 3, r.allowed(3), "never more than there are")

	r.failovers.end(&report.Failover{Kind: "kill-leader"})
	require.EqualValues(t, 980, r.allowed(1000))
	r.failovers.begin(1)
	r.failovers.end(nil)
	require.EqualValues(t, 1000, r.allowed(1000), "all failovers are over")
	require.Len(t, r.failovers.measured(), 1)
}

// A run does not stand still while a replay works, which makes everything that is missing visible.
func TestARunWaitsForACommandThatChangesTheReadModel(t *testing.T) {
	t.Parallel()
	r := &runner{rec: history.NewRecorder()}
	require.Positive(t, r.unmoved())
	r.changing.Add(1)
	require.Zero(t, r.unmoved())
}
