package remote

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Metrics are the metrics of a program. A nil Metrics measures nothing.
type Metrics struct {
	seconds, events prometheus.Histogram
	refusals        prometheus.Counter
	failures        *prometheus.CounterVec
}

const namespace = "sluice_program"

// NewMetrics registers the metrics of a program.
func NewMetrics(projection string, registry prometheus.Registerer) *Metrics {
	registered := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{telemetry.KeyProjection: projection}, registry))
	m := &Metrics{
		seconds: registered.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "call_seconds", Help: "Time of one call of the projection's program, also of one that failed.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16), // 0.5 ms to 16 s
		}),
		events: registered.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "call_events", Help: "Events in one call of the projection's program.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		refusals: registered.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "refusals_total", Help: "Events that the projection's program refused for good.",
		}),
		failures: registered.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "call_failures_total", Help: "Calls of the projection's program that failed.",
		}, []string{"kind"}),
	}
	for _, k := range kinds {
		m.failures.WithLabelValues(k)
	}
	return m
}

// kinds are the kinds of failures, as metrics name them.
var kinds = map[kind]string{away: "away", redeclared: "declaration", invalid: "invalid", broken: "error", slow: "slow", lost: "lost"}

func (m *Metrics) called(events int, took time.Duration, outcomes []Outcome, failed *callError) {
	if m == nil {
		return
	}
	m.seconds.Observe(took.Seconds())
	m.events.Observe(float64(events))
	if failed != nil {
		m.failures.WithLabelValues(kinds[failed.kind]).Inc()
	}
	for _, o := range outcomes {
		if o.Err != nil {
			m.refusals.Inc()
		}
	}
}
