package leader

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// The metrics of a failover: the silent leader is fenced, its successor begins over a broken lease
// and stops on request.
func TestMetricsCountHowTermsBeginAndEnd(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		configA, configB := testConfig("a"), testConfig("b")
		ofA, ofB := configA.Metrics, configB.Metrics
		a := join(t, m, h, configA)
		<-h.begun
		b := join(t, m, h, configB)
		time.Sleep(3500 * time.Millisecond) // virtual
		require.Zero(t, testutil.ToFloat64(ofA.failures))
		a.view.set(hang, nil)
		<-h.finished
		<-h.begun
		b.leave(t)
		a.view.set(nil, nil)
		a.leave(t)

		count := func(c *prometheus.CounterVec, label string) int {
			return int(testutil.ToFloat64(c.WithLabelValues(label)))
		}
		require.Equal(t, []int{1, 0, 1, 0}, []int{
			count(ofA.begun, begunFree), count(ofA.begun, begunBroken), count(ofA.ended, endedFenced), count(ofA.ended, endedStop),
		})
		require.Equal(t, []int{0, 1, 0, 1}, []int{
			count(ofB.begun, begunFree), count(ofB.begun, begunBroken), count(ofB.ended, endedFenced), count(ofB.ended, endedStop),
		})
		require.NotZero(t, testutil.ToFloat64(ofA.failures))
		registry := prometheus.NewRegistry()
		registry.MustRegister(ofA.margin)
		families, err := registry.Gather()
		require.NoError(t, err)
		margin := families[0].Metric[0].Histogram
		require.EqualValues(t, 3, margin.GetSampleCount(), "three heartbeats succeeded")
		require.InDelta(t, 9, margin.GetSampleSum(), 0.1, "each a second after the one before, of four")
	})
}
