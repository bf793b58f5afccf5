package changes

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
)

// Metrics counts what happens to a process's change streams, over all its terms.
type Metrics struct {
	reopenings  *prometheus.CounterVec
	replaced    prometheus.Counter
	unread      prometheus.Counter
	conflicting prometheus.Counter
	first       prometheus.Histogram
	rows        prometheus.Gauge
	estimate    prometheus.Gauge
	snapshotted prometheus.Gauge
	leftOut     prometheus.Counter
}

// NewMetrics registers the metrics of reading.
func NewMetrics(r prometheus.Registerer) *Metrics {
	registered := promauto.With(r)
	m := &Metrics{
		reopenings: registered.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_producer_stream_reopened_total",
			Help: "Times that the change stream had to be opened again, by cause.",
		}, []string{"cause"}),
		replaced: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_collection_replaced_total",
			Help: "Times that another collection was given the watched collection's name, so that its documents are not in the change stream.",
		}),
		unread: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_versions_unread_total",
			Help: "Events whose version is not an integer, so a missing event before them would go unnoticed.",
		}),
		conflicting: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_aggregates_alike_total",
			Help: "Events whose aggregate id may have the same text as one of another type, such as 17 and \"17\": the same text is one aggregate.",
		}),
		first: registered.NewHistogram(prometheus.HistogramOpts{
			Name:    "sluice_producer_first_answer_seconds",
			Help:    "Time from opening the change stream after the checkpoint to its first response.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 12),
		}),
		snapshotted: registered.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_producer_snapshot_began_seconds",
			Help: "When the snapshot that is being published began, in seconds of Unix time; 0 without one.",
		}),
		rows: registered.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_producer_snapshot_documents",
			Help: "Documents of the present or last snapshot that were read.",
		}),
		estimate: registered.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_producer_snapshot_documents_estimated",
			Help: "Documents that the collection had when the present or last snapshot began.",
		}),
		leftOut: registered.NewCounter(prometheus.CounterOpts{
			Name: "sluice_producer_snapshot_changes_left_out_total",
			Help: "Changes of documents that a snapshot had not reached: their rows contain them.",
		}),
	}
	for _, cause := range causes {
		m.reopenings.WithLabelValues(cause)
	}
	return m
}

// The causes of a reopened stream.
const (
	causeInvalidated = "invalidated"  // the collection was dropped or renamed
	causeEnded       = "ended"        // the server ended the stream without a reason
	causeSilent      = "no_answer"    // the server did not answer in time
	causeLost        = "history_lost" // ON_HISTORY_LOST=latest
	causeServer      = "server"       // an error of the server, such as an election
	causeSnapshot    = "snapshot"     // a snapshot began, changed or is complete
	causeNetwork     = "network"
)

var causes = []string{causeSnapshot, causeInvalidated, causeEnded, causeSilent, causeLost, causeServer, causeNetwork}

// causeOf returns why a stream is opened again after err; nil means an invalidate.
func causeOf(err error) string {
	server, answered := errors.AsType[mongo.ServerError](err)
	switch {
	case err == nil:
		return causeInvalidated
	case errors.Is(err, errSnapshotChanged):
		return causeSnapshot
	case errors.Is(err, errEnded):
		return causeEnded
	case errors.Is(err, errNoResponse):
		return causeSilent
	case classify(err, openState{resuming: true}) == historyLost:
		return causeLost
	case errors.Is(err, errTorn), answered && len(server.ErrorCodes()) > 0:
		return causeServer
	}
	return causeNetwork
}

// backfill shows how far a snapshot has come; b is nil without one.
func (m *Metrics) backfill(b *checkpoint.Backfill) {
	m.snapshotted.Set(0)
	if b == nil {
		return
	}
	if !b.Done {
		m.snapshotted.Set(float64(b.BeganAt.Unix()))
	}
	m.rows.Set(float64(b.Rows))
	m.estimate.Set(float64(b.Estimate))
}
