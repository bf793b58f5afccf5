// Package telemetry has what the services' logs and metrics share: the logger, the names of its
// keys, the instance's name, and the registry of metrics.
//
// Message bodies, tokens and secrets are never logged.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

// The keys of log records. Both services use them, so that a query for one works for the other.
const (
	KeyAddr        = "addr"
	KeyAggregate   = "aggregate"
	KeyAttempt     = "attempt"
	KeyCode        = "code"
	KeyBatch       = "batch_size"
	KeyCount       = "count"
	KeyDelivery    = "delivery_count"
	KeyDependency  = "dependency"
	KeyDescription = "description"
	KeyEntity      = "entity"
	KeyEpoch       = "epoch"
	KeyGo          = "go"
	KeyError       = "error"
	KeyFailures    = "failures"
	KeyFor         = "for"
	KeyInstance    = "instance"
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

// Logger returns a logger that writes JSON lines at or above level to w, each with the service and
// the instance.
func Logger(w io.Writer, level slog.Level, service, instance string) *slog.Logger {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	return slog.New(handler).With(KeyService, service, KeyInstance, instance)
}

// The forms of a log: what LOG_FORMAT takes.
const (
	FormatAuto = "auto" // text where it goes to a terminal, else JSON
	FormatJSON = "json"
	FormatText = "text"
)

// LoggerIn is like [Logger] in one of the forms. Text is for people: a short time first, nothing of
// what is the same in every record, identifiers shortened, and statuses as attributes.
func LoggerIn(format string, w io.Writer, level slog.Level, service, instance string) *slog.Logger {
	file, isFile := w.(*os.File)
	if format != FormatText && (format != FormatAuto || !isFile || !terminal.Is(file)) {
		return Logger(w, level, service, instance)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: forPeople}))
}

// Instance returns the name of this replica: the one that Container Apps gives it, else the host
// name in a container's environment, else the machine's name with the number of the process, since
// several replicas may run on one machine.
func Instance() string {
	for _, name := range []string{"CONTAINER_APP_REPLICA_NAME", "HOSTNAME"} {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		return fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	return uuid.NewString()
}

// Registry returns a registry with the metrics of the process and the Go runtime, and the handler
// that serves it.
func Registry() (*prometheus.Registry, http.Handler) {
	r := prometheus.NewRegistry()
	version, goVersion := Build()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_build_info", Help: "1, with the build in its labels.", ConstLabels: prometheus.Labels{"version": version, "goversion": goVersion},
	})
	build.Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r, promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Version is the version of this build. The build of the images and make build set it by -ldflags.
// Otherwise it is the commit or the module's version that the Go command recorded, else "unknown".
var Version = ""

// Build describes this build, for the first line of a service's log: its version and the Go that
// built it.
func Build() (version, goVersion string) {
	if Version != "" {
		return Version, runtime.Version()
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value, runtime.Version()
			}
		}
		if v := info.Main.Version; v != "" && v != "(devel)" { // go install …@version
			return v, runtime.Version()
		}
	}
	return "unknown", runtime.Version()
}
