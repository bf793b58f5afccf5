package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/health"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

func probes(ready error) health.Probes {
	_, metrics := telemetry.Registry()
	return health.Probes{
		Live:    func() error { return nil },
		Ready:   func() error { return ready },
		Status:  func() any { return map[string]int{"epoch": 3} },
		Metrics: metrics,
	}
}

func TestHandlerAnswersTheFourPaths(t *testing.T) {
	for path, want := range map[string]struct {
		status int
		holds  string
	}{
		"/livez":   {http.StatusOK, "ok"},
		"/readyz":  {http.StatusServiceUnavailable, "database away"},
		"/status":  {http.StatusOK, `"epoch": 3`},
		"/metrics": {http.StatusOK, "go_goroutines"},
		"/":        {http.StatusNotFound, "404"},
	} {
		t.Run(path, func(t *testing.T) {
			answer := httptest.NewRecorder()
			health.Handler(probes(errors.New("database away"))).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			require.Equal(t, want.status, answer.Code)
			require.Contains(t, answer.Body.String(), want.holds)
		})
	}
}

// An error may quote what a document holds: the answer does nothing to a terminal that shows it,
// and /status is JSON.
func TestG6HostileErrorsDoNothingToATerminal(t *testing.T) {
	for _, text := range []string{"\x1b[2J\x07", "\u202e", "a\r\nContent-Type: text/html", "<script>", "bad \xff\xfe", "nul\x00", "\u009b2J"} {
		hostile := probes(errors.New("event of " + text))
		hostile.Status = func() any { return map[string]string{"error": text} }
		for _, path := range []string{"/readyz", "/status"} {
			answer := httptest.NewRecorder()
			health.Handler(hostile).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			body := answer.Body.String()
			require.NotRegexp(t, `[\x00-\x09\x0b-\x1f]`, body, "%s: %q", path, text)
			require.True(t, utf8.ValidString(body))
			if path == "/status" { // for programs, which may read what people do not
				require.True(t, json.Valid([]byte(body)), body)
				require.Equal(t, "application/json", answer.Header().Get("Content-Type"))
				continue
			}
			require.NotRegexp(t, `[\x7f\x{80}-\x{9f}]|\x{202e}|\x{fffd}`, body, "%q", text)
			require.Equal(t, "text/plain; charset=utf-8", answer.Header().Get("Content-Type"))
		}
	}
}

func TestServeLogsItsAddressAndEndsWithTheContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	log := slog.New(slog.NewJSONHandler(writer, nil))
	var served error
	var serving sync.WaitGroup
	serving.Go(func() { served = health.Serve(ctx, "127.0.0.1:0", probes(nil), log) })

	var line struct{ Msg, Addr string }
	require.NoError(t, json.NewDecoder(reader).Decode(&line))
	require.Equal(t, "serving health checks", line.Msg)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+line.Addr+"/readyz", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	stop()
	serving.Wait()
	require.NoError(t, served)
}

// Two programs on one machine want the same address by default: the error names the setting.
func TestAnAddressInUseNamesItsSetting(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	address := taken.Listener.Addr().String()
	err := health.Serve(t.Context(), address, probes(nil), slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "listen for health checks on "+address)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "set HTTP_ADDR to another address (such as :8081), or leave it empty (HTTP_ADDR=)")
}
