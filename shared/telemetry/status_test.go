package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// The alerts' queries read .msg and .status.FIELD of a JSON line: this is that form.
func TestReportStatusWritesALineEachInterval(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := Logger(&out, slog.LevelInfo, "producer", "p-1")
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		var reporting sync.WaitGroup
		reporting.Go(func() {
			ReportStatus(ctx, log, 15*time.Second, func() any {
				calls++
				return struct {
					Calls int `json:"calls"`
				}{calls}
			})
		})
		time.Sleep(31 * time.Second) // virtual
		cancel()
		reporting.Wait()

		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		require.Len(t, lines, 3)
		for i, line := range lines {
			var record struct {
				Msg, Service, Instance string
				Status                 struct{ Calls int }
			}
			require.NoError(t, json.Unmarshal(line, &record))
			require.Equal(t, "status", record.Msg)
			require.Equal(t, "p-1", record.Instance)
			require.Equal(t, i+1, record.Status.Calls)
		}
	})
}

func TestReportStatusIsOffAtZero(t *testing.T) {
	ReportStatus(t.Context(), slog.New(slog.DiscardHandler), 0, func() any {
		t.Error("asked for a status")
		return nil
	})
}

func TestBuildPrefersTheStampedVersion(t *testing.T) {
	t.Cleanup(func() { Version = "" })
	Version = "1.2.3"
	version, _ := Build()
	require.Equal(t, "1.2.3", version)
	Version = ""
	version, goVersion := Build()
	require.NotEmpty(t, version)
	require.Contains(t, goVersion, "go1.")
}
