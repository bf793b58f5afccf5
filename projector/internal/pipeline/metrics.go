package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Metrics are the projector's counters and metrics. It is safe for concurrent use.
type Metrics struct {
	sessionsHeld, events, duplicates, dead, redelivered atomic.Int64

	lag    atomic.Int64 // in milliseconds
	parked atomic.Int64 // aggregates, in the read model

	// newlyParked wakes the goroutine that counts parked aggregates.
	newlyParked chan struct{}

	collectors
}

// collectors are the metrics of Prometheus.
type collectors struct {
	appliedTotal, duplicatesTotal, redeliveries, applyFailures, settleFailures prometheus.Counter
	deadLettered                                                               *prometheus.CounterVec
	held, parkedAggregates, projectionsHanging, awaitingBuild, buildEvents     prometheus.Gauge
	gaps                                                                       prometheus.Counter
	acceptSeconds, applySeconds, settleSeconds, batchSize, latency             prometheus.Histogram
}

const namespace = "sluice_projector"

// NewMetrics registers the metrics of a projection.
func NewMetrics(projection string, registry prometheus.Registerer) *Metrics {
	m := &Metrics{newlyParked: make(chan struct{}, 1)}
	m.lag.Store(-1)
	m.parked.Store(-1)
	registered := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{telemetry.KeyProjection: projection}, registry))

	counter := func(name, help string) prometheus.Counter {
		return registered.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return registered.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	}
	durations := prometheus.ExponentialBuckets(0.0005, 2, 16) // 0.5 ms to 16 s
	m.collectors = collectors{
		appliedTotal:    counter("applied_total", "Events whose effect was committed."),
		duplicatesTotal: counter("duplicates_total", "Events recognised as applied before."),
		redeliveries:    counter("redeliveries_total", "Messages received with a delivery count above 1."),
		applyFailures:   counter("apply_failures_total", "Attempts to write a batch that failed and were repeated."),
		gaps:            counter("version_gaps_total", "Attempts after which events of a session waited for a missing version."),
		settleFailures:  counter("settle_failures_total", "Batches of which a message could not be settled and will be delivered again."),
		acceptSeconds: histogram("accept_seconds", "Time from asking for a session to having it, waiting until there is one included.",
			prometheus.ExponentialBuckets(0.001, 2, 17)), // 1 ms to 65 s
		applySeconds:  histogram("apply_seconds", "Time to write one batch, in the attempt that succeeded.", durations),
		settleSeconds: histogram("settle_seconds", "Time to settle one batch.", durations),
		batchSize:     histogram("batch_size", "Messages received at once.", prometheus.ExponentialBuckets(1, 2, 11)),
		latency: histogram("latency_seconds", "Time from a change in the source to its effect in the read model, by the two machines' clocks.",
			prometheus.ExponentialBuckets(0.001, 2, 20)), // 1 ms to 9 min
		deadLettered: registered.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "deadlettered_total", Help: "Messages moved to the dead-letter queue.",
		}, []string{"reason"}),
		held: registered.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "sessions_held", Help: "Sessions held now, those that only wait included."}),
	}
	m.parkedAggregates = registered.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "parked_aggregates", Help: "Parked aggregates in the read model.",
	})
	m.projectionsHanging = registered.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "projections_hanging", Help: "Events from which the projection has not returned in time, and that it still holds.",
	})
	m.awaitingBuild = registered.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "awaiting_build", Help: "1 while no event is applied because the read model is not built yet, else 0.",
	})
	m.buildEvents = registered.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_events", Help: "Events that the build of the read model has read so far.",
	})
	for _, reason := range apply.Reasons() { // a counter that begins at its first event hides it
		m.deadLettered.WithLabelValues(reason)
	}
	return m
}

// Held counts sessions that are accepted (+1) and released (-1).
func (m *Metrics) Held(delta int) {
	m.sessionsHeld.Add(int64(delta))
	m.held.Add(float64(delta))
}

// Build records whether the read model is still to be built, and how many events its build has
// read.
func (m *Metrics) Build(awaited bool, events int64) {
	m.awaitingBuild.Set(0)
	if awaited {
		m.awaitingBuild.Set(1)
	}
	m.buildEvents.Set(float64(events))
}

// Accepted records how long the accept of a session took.
func (m *Metrics) Accepted(took time.Duration) { m.acceptSeconds.Observe(took.Seconds()) }

func (m *Metrics) countedParked(n int64) {
	m.parked.Store(n)
	m.parkedAggregates.Set(float64(n))
}

// Counts are the values of the counters.
type Counts struct {
	SessionsHeld, Applied, Duplicates, DeadLettered, Redelivered int64
	LagMS, Parked                                                int64 // -1: not known yet
}

// Counts returns the values of the counters.
func (m *Metrics) Counts() Counts {
	return Counts{
		SessionsHeld: m.sessionsHeld.Load(),
		Applied:      m.events.Load(),
		Duplicates:   m.duplicates.Load(),
		DeadLettered: m.dead.Load(),
		Redelivered:  m.redelivered.Load(),
		LagMS:        m.lag.Load(),
		Parked:       m.parked.Load(),
	}
}
