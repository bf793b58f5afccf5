package tracing

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

func TestTracesAreOffWithoutAnEndpoint(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing set":    {},
		"disabled":       {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "true"},
		"no exporter":    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"},
		"empty endpoint": {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			traces, err := FromEnvironment(t.Context(), "producer", "p-1", slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			require.Nil(t, traces)
			require.Nil(t, traces.Tracer("test"))
			traces.Close(t.Context())
		})
	}
}

func TestWrongSettingsOfTracesAreAllReported(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "carrier-pigeon")
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	_, err := FromEnvironment(t.Context(), "producer", "p-1", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_ENDPOINT: must be an http or https URL")
	require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: must be http/protobuf, http/json or grpc")
	require.ErrorContains(t, err, "OTEL_TRACES_EXPORTER: must be otlp or none")
}

func TestAnOutageOfTheCollectorIsLoggedOnce(t *testing.T) {
	var away atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			http.Error(w, "no", http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	var out bytes.Buffer
	traces, err := FromEnvironment(t.Context(), "producer", "p-1", slog.New(slog.NewTextHandler(&out, nil)))
	require.NoError(t, err)
	export := func() {
		_, span := traces.Tracer("test").Start(t.Context(), "span")
		span.End()
		require.NoError(t, traces.provider.ForceFlush(t.Context()))
	}
	export()
	away.Store(true)
	export()
	export()
	away.Store(false)
	export()
	export()
	traces.Close(t.Context())
	require.Equal(t, 1, strings.Count(out.String(), "traces cannot be exported"), out.String())
	require.Equal(t, 1, strings.Count(out.String(), "traces are exported again"), out.String())
}

func TestTraceParentIsTheW3Cs(t *testing.T) {
	const text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	remote := Remote(text)
	require.True(t, remote.IsValid())
	require.True(t, remote.IsSampled())
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", remote.TraceID().String())
	require.Equal(t, text, TraceParent(remote))
	require.Empty(t, TraceParent(trace.SpanContext{}))
	require.Equal(t, text, TraceParent(Remote("01"+text[2:]+"-more")), "a later version")
	for _, wrong := range []string{
		"", "x", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		strings.ToUpper(text), text + "-more", text[:54], text[:54] + "g", "0g" + text[2:], "01" + text[2:] + "more",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
	} {
		require.False(t, Remote(wrong).IsValid(), wrong)
	}
}
