package pipeline

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// A build that is awaited shows in the metrics, with how far it is.
func TestABuildShowsInTheMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics("orders", registry)
	values := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		found := map[string]float64{}
		for _, f := range families {
			found[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return found
	}
	m.Build(true, 5000)
	require.InDelta(t, 1, values()["sluice_projector_awaiting_build"], 0)
	require.InDelta(t, 5000, values()["sluice_projector_build_events"], 0)
	m.Build(false, 9000)
	require.InDelta(t, 0, values()["sluice_projector_awaiting_build"], 0)
	require.InDelta(t, 9000, values()["sluice_projector_build_events"], 0)
}
