package leader

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts the leadership of a process, over all its terms.
type Metrics struct {
	begun    *prometheus.CounterVec
	ended    *prometheus.CounterVec
	failures prometheus.Counter
	margin   prometheus.Histogram
}

// How a term began.
const (
	begunFree   = "free"   // the lease was free: the stream is new, or its leader released the lease or let it expire
	begunBroken = "broken" // the previous leader was silent and its lease was broken
)

// How a term ended.
const (
	endedStop     = "stop"
	endedLost     = "lost"
	endedFenced   = "fenced"
	endedStepDown = "step_down"
	endedError    = "error"
)

// NewMetrics registers the metrics of leadership.
func NewMetrics(r prometheus.Registerer) *Metrics {
	registered := promauto.With(r)
	m := &Metrics{
		begun: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_producer_terms_begun_total",
			Help: "Terms of leadership that began in this process: over a free lease, or over the broken one of a silent leader.",
		}, []string{"lease"}),
		ended: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_producer_terms_ended_total",
			Help: "Terms of leadership that ended in this process, by reason.",
		}, []string{"reason"}),
		failures: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_heartbeat_failures_total",
			Help: "Heartbeats and renewals of the lease that failed while leading and were repeated.",
		}),
		margin: registered.NewHistogram(prometheus.HistogramOpts{
			Name:    "sluice_producer_fence_margin_seconds",
			Help:    "Time left until the fence when a heartbeat succeeded. At 0 the leader stops.",
			Buckets: []float64{0, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4, 6, 10, 20},
		}),
	}
	for _, lease := range []string{begunFree, begunBroken} {
		m.begun.WithLabelValues(lease)
	}
	for _, reason := range []string{endedStop, endedLost, endedFenced, endedStepDown, endedError} {
		m.ended.WithLabelValues(reason)
	}
	return m
}

// reasonOf returns how a term ended whose error is err.
func reasonOf(err error) string {
	switch {
	case err == nil:
		return endedStop
	case errors.Is(err, ErrLost):
		return endedLost
	case errors.Is(err, ErrFenced):
		return endedFenced
	case errors.Is(err, ErrStepDown):
		return endedStepDown
	}
	return endedError
}
