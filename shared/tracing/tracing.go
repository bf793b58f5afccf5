// Package tracing sends a service's OpenTelemetry spans to an OTLP endpoint, if the environment
// names one, and passes a trace on with a change, in its W3C traceparent.
//
// Guaranteed: without an endpoint, there are no spans and no cost. With one, the pipeline never
// waits for it: spans that the endpoint does not accept in time are dropped, and a stop waits for
// the last ones no longer than [CloseTimeout].
//
// Not guaranteed: that every span arrives.
//
// The settings are OpenTelemetry's own variables, which its SDK reads: OTEL_EXPORTER_OTLP_*,
// OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME, OTEL_BSP_*, OTEL_SPAN_*, and
// here OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER and the protocol.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// CloseTimeout bounds how long a stop waits until the last spans are accepted.
const CloseTimeout = 3 * time.Second

// Traces sends a service's spans; nil drops them.
type Traces struct {
	provider *sdk.TracerProvider
	log      *slog.Logger
}

// FromEnvironment returns the Traces for the endpoint in OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
// OTEL_EXPORTER_OTLP_ENDPOINT; nil if there is no endpoint or tracing is turned off. Nothing is
// sent before the first span ends, so that an endpoint that does not answer delays nothing. The
// error joins all settings that cannot be understood.
func FromEnvironment(ctx context.Context, service, instance string, log *slog.Logger) (*Traces, error) {
	endpoint, name := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	exporter, _ := first("OTEL_TRACES_EXPORTER")
	disabled, _ := first("OTEL_SDK_DISABLED")
	if endpoint == "" || exporter == "none" || strings.EqualFold(disabled, "true") {
		return nil, nil
	}
	protocol, protocolName := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if err := errors.Join(checkEndpoint(name, endpoint), checkExporter(exporter), checkProtocol(protocolName, protocol)); err != nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // what the SDK finds wrong in its settings, for example
		log.Warn("OpenTelemetry reports a problem", telemetry.KeyError, err)
	}))
	open := func() (sdk.SpanExporter, error) { return otlptracehttp.New(ctx) }
	if protocol == "grpc" {
		open = func() (sdk.SpanExporter, error) { return otlptracegrpc.New(ctx) }
	}
	otlp, err := open()
	if err != nil {
		return nil, fmt.Errorf("open OTLP exporter: %w", err)
	}
	version, _ := telemetry.Build()
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "sluice-"+service),
			attribute.String("service.instance.id", instance),
			attribute.String("service.version", version),
		),
		resource.WithFromEnv()) // the last one wins
	if err != nil && about == nil {
		return nil, fmt.Errorf("describe the service to OpenTelemetry: %w", err)
	}
	log.Info("traces are exported", telemetry.KeyProtocol, cmp.Or(protocol, "http/protobuf"))
	return &Traces{
		provider: sdk.NewTracerProvider(sdk.WithBatcher(&reporting{SpanExporter: otlp, log: log}), sdk.WithResource(about)),
		log:      log,
	}, nil
}

// Tracer returns the tracer of a package; nil if there are to be no spans.
func (t *Traces) Tracer(name string) trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer(name)
}

// Close sends what is left, for [CloseTimeout] at most.
func (t *Traces) Close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans were not all exported", telemetry.KeyError, err)
	}
}

// reporting logs once that spans are not accepted, and once that they are accepted again.
type reporting struct {
	sdk.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

// ExportSpans passes spans on. Those that are not accepted are dropped: they are not worth memory
// or time.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !r.failing.Swap(true):
		r.log.Warn("traces cannot be exported; their spans are dropped", telemetry.KeyError, err)
	case err == nil && r.failing.Swap(false):
		r.log.Info("traces are exported again")
	}
	return nil
}

// first returns the value of the first variable that is set, and its name.
func first(names ...string) (value, name string) {
	for _, name := range names {
		if value := strings.TrimSpace(os.Getenv(name)); value != "" {
			return value, name
		}
	}
	return "", names[0]
}

func checkEndpoint(name, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s: must be an http or https URL such as http://localhost:4318", name)
	}
	return nil
}

func checkExporter(exporter string) error {
	if exporter != "" && exporter != "otlp" {
		return fmt.Errorf("OTEL_TRACES_EXPORTER: must be otlp or none (it is %q)", exporter)
	}
	return nil
}

func checkProtocol(name, protocol string) error {
	switch protocol {
	case "", "grpc", "http/protobuf", "http/json":
		return nil
	}
	return fmt.Errorf("%s: must be http/protobuf, http/json or grpc (it is %q)", name, protocol)
}
