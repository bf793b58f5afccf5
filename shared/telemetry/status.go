package telemetry

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// StatusMessage is the message of the records that [ReportStatus] writes. Alerts and the workbook
// select by it.
const StatusMessage = "status"

// WatchMessage is the message of the record that `projector status --log` writes, and the name of
// its attribute. Alerts select by it.
const WatchMessage = "watched"

// LogStart writes a service's first record, with the version of the build. Alerts count it by
// instance: a second one in a replica is a restart.
func LogStart(log *slog.Logger) {
	version, goVersion := Build()
	log.Info("starting", KeyVersion, version, KeyGo, goVersion)
}

// LogRefused writes the only record of a service that does not start because its settings are
// wrong, at level ERROR, as [Logger] would: who is on call hears of ERROR records, and not of what
// is printed for the person at a prompt.
func LogRefused(w io.Writer, service string, err error) {
	Logger(w, slog.LevelError, service, Instance()).Error("settings are wrong", KeyError, err)
}

// LogWatched writes what `projector status --log` has counted, as one record that alerts can read.
func LogWatched(log *slog.Logger, watched any) { log.Info(WatchMessage, WatchMessage, watched) }

// ReportStatus logs what status returns, as the attribute "status", at once and then every interval
// until ctx ends. From it, alerts know what only the service knows, even if nothing scrapes
// metrics. An interval of 0 reports nothing.
func ReportStatus(ctx context.Context, log *slog.Logger, interval time.Duration, status func() any) {
	if interval <= 0 {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		log.Info(StatusMessage, "status", status())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
