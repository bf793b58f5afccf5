package projector

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/settle"
	"github.com/sluice-cdc/sluice/shared/health"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Status is what /status shows.
type Status struct {
	Instance     string `json:"instance"`
	Projection   string `json:"projection"`
	SessionsHeld int64  `json:"sessions_held"`
	Applied      int64  `json:"applied"`       // events whose effect this process committed
	Duplicates   int64  `json:"duplicates"`    // events it recognised as applied before
	DeadLettered int64  `json:"dead_lettered"` // messages it moved to the dead-letter queue
	Redelivered  int64  `json:"redelivered"`   // messages received with a delivery count above 1
	// LagMS is the time from the newest applied change in the source to its effect, by the two machines' clocks; -1 before
	// the first one.
	LagMS int64 `json:"lag_ms"`
	// Parked is the number of parked aggregates in the read model, whoever parked them; -1 before it has been counted.
	Parked int64 `json:"parked"`
}

// state is what the service tells about itself: counters, metrics, readiness. Everything in it may be used from any
// goroutine.
type state struct {
	instance, projection string

	stopping                                            atomic.Bool
	mongoReady, busReady                                atomic.Bool
	sessionsHeld, events, duplicates, dead, redelivered atomic.Int64
	lag                                                 atomic.Int64 // in milliseconds
	parked                                              atomic.Int64 // aggregates, in the read model

	// newlyParked wakes who counts parked aggregates.
	newlyParked chan struct{}

	metricsHandler http.Handler
	metrics        metrics
}

type metrics struct {
	applied, duplicates, redeliveries, applyFailures, settleFailures prometheus.Counter
	deadLettered                                                     *prometheus.CounterVec
	held, parked                                                     prometheus.Gauge
	gaps                                                             prometheus.Counter
	acceptSeconds, applySeconds, settleSeconds, batchSize, latency   prometheus.Histogram
}

const namespace = "sluice_projector"

func (s *state) init(instance, projection string) {
	s.instance, s.projection = instance, projection
	s.lag.Store(-1)
	s.parked.Store(-1)
	s.newlyParked = make(chan struct{}, 1)
	registry, handler := telemetry.Registry()
	s.metricsHandler = handler
	registered := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{telemetry.KeyProjection: projection}, registry))

	counter := func(name, help string) prometheus.Counter {
		return registered.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return registered.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	}
	durations := prometheus.ExponentialBuckets(0.0005, 2, 16) // 0.5 ms to 16 s
	s.metrics = metrics{
		applied:        counter("applied_total", "Events whose effect was committed."),
		duplicates:     counter("duplicates_total", "Events recognised as applied before."),
		redeliveries:   counter("redeliveries_total", "Messages received with a delivery count above 1."),
		applyFailures:  counter("apply_failures_total", "Attempts to write a batch that failed and were repeated."),
		gaps:           counter("version_gaps_total", "Attempts after which events of a session waited for a missing version."),
		settleFailures: counter("settle_failures_total", "Batches of which a message could not be settled and will be delivered again."),
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
	s.metrics.parked = registered.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "parked_aggregates", Help: "Parked aggregates in the read model, whoever parked them.",
	})
	for _, reason := range apply.Reasons() { // a counter that begins at its first event hides it
		s.metrics.deadLettered.WithLabelValues(reason)
	}
}

func (s *state) held(delta int) {
	s.sessionsHeld.Add(int64(delta))
	s.metrics.held.Add(float64(delta))
}

func (s *state) accepted(took time.Duration) { s.metrics.acceptSeconds.Observe(took.Seconds()) }

func (s *state) received(messages []*azservicebus.ReceivedMessage) {
	s.metrics.batchSize.Observe(float64(len(messages)))
	for _, m := range messages {
		if m.DeliveryCount > 1 {
			s.redelivered.Add(1)
			s.metrics.redeliveries.Inc()
		}
	}
}

// applied counts what an attempt has decided; whole says that it did not fail as a whole.
func (s *state) applied(b *batch, took time.Duration, whole bool) {
	if whole {
		s.metrics.applySeconds.Observe(took.Seconds())
	}
	now := time.Now()
	for i, r := range b.results {
		switch r.Kind {
		case apply.Applied:
			s.events.Add(1)
			s.metrics.applied.Inc()
			if made := b.changes[i].Time; !made.IsZero() {
				lag := max(now.Sub(made), 0)
				s.metrics.latency.Observe(lag.Seconds())
				s.lag.Store(lag.Milliseconds())
			}
		case apply.Duplicate:
			s.duplicates.Add(1)
			s.metrics.duplicates.Inc()
		case apply.Poison:
			select {
			case s.newlyParked <- struct{}{}:
			default:
			}
		case apply.Pending, apply.Parked, apply.Gap:
		}
	}
}

func (s *state) applyFailed() { s.metrics.applyFailures.Inc() }

func (s *state) settled(choices []settle.Choice, took time.Duration, err error) {
	s.metrics.settleSeconds.Observe(took.Seconds())
	if err != nil {
		s.metrics.settleFailures.Inc()
		return
	}
	for _, c := range choices {
		if c.Action == settle.DeadLetter {
			s.dead.Add(1)
			s.metrics.deadLettered.WithLabelValues(c.Reason).Inc()
		}
	}
}

// Status is the state for people.
func (s *state) Status() Status {
	return Status{
		Instance:     s.instance,
		Projection:   s.projection,
		SessionsHeld: s.sessionsHeld.Load(),
		Applied:      s.events.Load(),
		Duplicates:   s.duplicates.Load(),
		DeadLettered: s.dead.Load(),
		Redelivered:  s.redelivered.Load(),
		LagMS:        s.lag.Load(),
		Parked:       s.parked.Load(),
	}
}

func (s *state) probes() health.Probes {
	return health.Probes{
		Live:    func() error { return nil },
		Ready:   s.ready,
		Status:  func() any { return s.Status() },
		Metrics: s.metricsHandler,
	}
}

func (s *state) ready() error {
	switch {
	case s.stopping.Load():
		return errors.New("stopping")
	case !s.mongoReady.Load():
		return errors.New("not yet connected to MongoDB")
	case !s.busReady.Load():
		return errors.New("not yet connected to Service Bus")
	}
	return nil
}
