package publish

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts what a process has published, over all its terms.
type Metrics struct {
	published      prometheus.Counter
	retries        prometheus.Counter
	unknown        prometheus.Counter
	busy           prometheus.Counter
	refusals       prometheus.Counter
	splits         prometheus.Counter
	parked         prometheus.Counter
	claims         prometheus.Counter
	claimBytes     prometheus.Counter
	batches        prometheus.Histogram
	latency        prometheus.Histogram
	publishedTotal atomic.Int64
	parkedTotal    atomic.Int64
}

// NewMetrics registers the metrics of publishing.
func NewMetrics(r prometheus.Registerer) *Metrics {
	registered := promauto.With(r)
	return &Metrics{
		published: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_published_total",
			Help: "Events that Service Bus has acknowledged to this process.",
		}),
		retries: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_send_retries_total",
			Help: "Attempts to open a link or to send a batch that failed and were repeated.",
		}),
		unknown: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_outcome_unknown_total",
			Help: "Attempts to send a batch that may or may not have stored it. This leader or the next sends the same batch again.",
		}),
		busy: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_throttled_total",
			Help: "Attempts to send that Service Bus refused because it was busy or full; part of the retries.",
		}),
		refusals: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_unsendable_total",
			Help: "Events that can never be sent. Each stops the stream, unless it is parked.",
		}),
		splits: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_batches_split_total",
			Help: "Batches that Service Bus did not accept, and that were sent in parts to find the refused message.",
		}),
		parked: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_parked_total",
			Help: "Events that Service Bus permanently refused, and that were stored in Blob storage instead (ON_REFUSED=park).",
		}),
		claims: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_claim_checks_total",
			Help: "Events whose bodies were too large for a message and were stored in Blob storage.",
		}),
		claimBytes: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_claim_check_bytes_total", Help: "Bytes of those bodies.",
		}),
		batches: registered.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_producer_batch_size", Help: "Events in a batch.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		}),
		latency: registered.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_producer_send_seconds", Help: "Time from the first attempt to send a batch to its acknowledgement.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
	}
}

// Published returns the number of events acknowledged to this process.
func (m *Metrics) Published() int64 { return m.publishedTotal.Load() }

// Parked returns the number of events that Service Bus permanently refused and this process stored
// in Blob storage.
func (m *Metrics) Parked() int64 { return m.parkedTotal.Load() }

func (m *Metrics) acknowledged(events int, latency time.Duration) {
	m.publishedTotal.Add(int64(events))
	m.published.Add(float64(events))
	m.batches.Observe(float64(events))
	m.latency.Observe(latency.Seconds())
}

func (m *Metrics) park() {
	m.parked.Inc()
	m.parkedTotal.Add(1)
}

func (m *Metrics) claimChecked(bytes int64) {
	m.claims.Inc()
	m.claimBytes.Add(float64(bytes))
}
