package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
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

func TestTheLogIsTextForPeopleAndJSONElsewhere(t *testing.T) {
	for format, want := range map[string]string{
		FormatText: `^time=\d\d:\d\d:\d\d\.\d{3} level=INFO msg="x\\x1b\[31m"\n$`,
		FormatJSON: `^\{.*"service":"producer","instance":"p-1"\}\n$`,
		FormatAuto: `^\{`, // it goes to no terminal
	} {
		var out bytes.Buffer
		LoggerIn(format, &out, slog.LevelInfo, "producer", "p-1").Info("x\x1b[31m")
		require.Regexp(t, want, out.String(), format)
		require.NotContains(t, out.String(), "\x1b")
	}
}

func TestTheLogIsTextOnATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal can be made here:", err)
	}
	t.Cleanup(func() { require.NoError(t, terminal.Close()) })
	LoggerIn(FormatAuto, terminal, slog.LevelInfo, "producer", "p-1").Info("hello")
	echoed, err := bufio.NewReader(terminal).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^time=\S+ level=INFO msg=hello`, echoed)
}

func TestTheInstancesNameCanBeRead(t *testing.T) {
	t.Setenv("CONTAINER_APP_REPLICA_NAME", "")
	t.Setenv("HOSTNAME", "")
	require.Regexp(t, `^.+-\d+$`, Instance())
}

func TestTheRegistryHasTheBuild(t *testing.T) {
	_, handler := Registry()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Regexp(t, `sluice_build_info\{goversion="go1[^"]*",version="[^"]+"\} 1`, answer.Body.String())
}
