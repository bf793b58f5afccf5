// Package telemetry has what the services' logs and metrics share: the logger, the names of its keys, the instance's name, and the
// registry of metrics.
//
// Message bodies, tokens and secrets are never logged.
package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The keys of log records. Both services use them, so that a query for one works for the other.
const (
	KeyAddr        = "addr"
	KeyAggregate   = "aggregate"
	KeyAttempt     = "attempt"
	KeyCode        = "code"
	KeyBatch       = "batch_size"
	KeyDelivery    = "delivery_count"
	KeyDependency  = "dependency"
	KeyDescription = "description"
	KeyDuration    = "duration_ms"
	KeyEntity      = "entity"
	KeyEpoch       = "epoch"
	KeyGo          = "go"
	KeyError       = "error"
	KeyFailures    = "failures"
	KeyFor         = "for"
	KeyInstance    = "instance"
	KeyLane        = "lane"
	KeyLeader      = "leader"
	KeyMessageID   = "message_id"
	KeyPosition    = "position"
	KeyProjection  = "projection"
	KeyProtocol    = "protocol"
	KeyReason      = "reason"
	KeyService     = "service"
	KeySession     = "session"
	KeyStack       = "stack"
	KeyStream      = "stream"
	KeyToDo        = "to_do"
	KeyVersion     = "version"
	KeyWait        = "wait_ms"
)

// LabelStream is the label of a metric with the name of its stream.
const LabelStream = KeyStream

// Logger returns a logger that writes JSON lines at or above level to w, each with the service and the instance.
func Logger(w io.Writer, level slog.Level, service, instance string) *slog.Logger {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	return slog.New(handler).With(KeyService, service, KeyInstance, instance)
}

// Instance is the name of this replica: the one that Container Apps gives it, else the host's, else a random UUID.
func Instance() string {
	for _, name := range []string{"CONTAINER_APP_REPLICA_NAME", "HOSTNAME"} {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return uuid.NewString()
}

// Registry returns a registry with the metrics of the process and the Go runtime, and the handler that serves it.
func Registry() (*prometheus.Registry, http.Handler) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r, promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
