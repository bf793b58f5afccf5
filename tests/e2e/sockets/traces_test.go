package sockets_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/tracing"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

// span is a span as a collector receives it.
type span struct {
	*otlp.Span
	service string // of the resource
}

func (s span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// receiver is an OTLP collector, over HTTP and over gRPC.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	t *testing.T

	mu    sync.Mutex
	spans []span
}

func (r *receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range request.ResourceSpans {
		service := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, span{s, service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil || request.URL.Path != "/v1/traces" {
		http.Error(w, "not a trace", http.StatusBadRequest)
		return
	}
	var decoded collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &decoded); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response, _ := r.Export(request.Context(), &decoded)
	answer, _ := proto.Marshal(response)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

// overHTTP and overGRPC serve the receiver and return its address.
func (r *receiver) overHTTP() string {
	server := httptest.NewServer(r)
	r.t.Cleanup(server.Close)
	return server.URL
}

func (r *receiver) overGRPC() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(r.t, err)
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	r.t.Cleanup(func() { server.Stop(); serving.Wait() })
	return "http://" + l.Addr().String()
}

func (r *receiver) named(name string) (found []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// traced runs both services on the embedded stack, with traces as the environment configures them,
// until the events are applied and both have stopped.
func traced(t *testing.T, events []any) {
	t.Helper()
	s := newRealStack(t, false)
	s.settings["TRACE_PARENT_PATH"], s.settings["HTTP_ADDR"] = "trace", ""
	producing, projecting := s.configured()
	quiet := slog.New(slog.DiscardHandler)
	ofProducer, err := tracing.FromEnvironment(t.Context(), "producer", "producer-1", quiet)
	require.NoError(t, err)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on") // which the projector must ignore: the producer has decided
	ofProjector, err := tracing.FromEnvironment(t.Context(), "projector", "projector-1", quiet)
	require.NoError(t, err)
	stop := s.run(producing, producer.Options{Tracer: ofProducer.Tracer("test")}, projecting, projector.Options{Tracer: ofProjector.Tracer("test")})
	s.leads("a")
	_, err = s.events.InsertMany(t.Context(), events)
	require.NoError(t, err)
	s.until("all events are applied", func() bool {
		return s.stack.ServiceBus.Stats(s.stack.Route.Out()).Completed >= len(events)
	})
	stop()
	ofProducer.Close(t.Context())
	ofProjector.Close(t.Context())
}

// One trace leads from the writer of an event, through the producer, to its effect in the read
// model.
func TestTraceLeadsFromTheEventToTheReadModel(t *testing.T) {
	const events = 20
	caller := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // the W3C's own example
	for protocol, serve := range map[string]func(*receiver) string{
		"http/protobuf": (*receiver).overHTTP, "grpc": (*receiver).overGRPC,
	} {
		t.Run(protocol, func(t *testing.T) {
			r := &receiver{t: t}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", serve(r))
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			var documents []any
			for n := range events {
				d := bson.D{{Key: "aggregateId", Value: fmt.Sprintf("a%d", n%3)}, {Key: "version", Value: n/3 + 1}, {Key: "type", Value: "Counted"}}
				if n == 7 {
					d = append(d, bson.E{Key: "trace", Value: caller})
				}
				documents = append(documents, d)
			}
			traced(t, documents)

			published := r.named("publish " + emulator.Topic)
			processed := r.named("process " + emulator.Topic + "/" + emulator.Subscription)
			require.Len(t, published, events)
			require.Len(t, processed, events)
			traces, fromCaller := map[string]bool{}, 0
			for _, p := range published {
				require.Equal(t, "sluice-producer", p.service)
				require.Equal(t, otlp.Span_SPAN_KIND_PRODUCER, p.Kind)
				require.NotEqual(t, otlp.Status_STATUS_CODE_ERROR, p.Status.GetCode())
				trace := hex.EncodeToString(p.TraceId)
				require.False(t, traces[trace], "each event has a trace of its own")
				traces[trace] = true
				if trace == caller[3:35] {
					fromCaller++
					require.Equal(t, caller[36:52], hex.EncodeToString(p.ParentSpanId))
				}
				i := slices.IndexFunc(processed, func(s span) bool { return s.attribute("messaging.message.id") == p.attribute("messaging.message.id") })
				require.GreaterOrEqual(t, i, 0, "an event that was published is applied")
				q := processed[i]
				require.Equal(t, "sluice-projector", q.service)
				require.Equal(t, otlp.Span_SPAN_KIND_CONSUMER, q.Kind)
				require.Equal(t, "applied", q.attribute("sluice.outcome"))
				require.Equal(t, p.TraceId, q.TraceId)
				require.Equal(t, p.SpanId, q.ParentSpanId)
			}
			require.Equal(t, 1, fromCaller)
			// The spans of a batch are in the trace of one of its events and linked to the others'.
			for _, name := range []string{"receive", "apply", "settle"} {
				r.covers(t, name+" "+emulator.Topic+"/"+emulator.Subscription, processed)
			}
			r.covers(t, "send "+emulator.Topic, published)
		})
	}
}

// covers requires that each event is the parent of, or linked to, exactly one span of a batch.
func (r *receiver) covers(t *testing.T, name string, events []span) {
	t.Helper()
	covered := map[string]int{}
	for _, b := range r.named(name) {
		covered[hex.EncodeToString(b.ParentSpanId)]++
		for _, l := range b.Links {
			covered[hex.EncodeToString(l.SpanId)]++
		}
	}
	for _, e := range events {
		require.Equal(t, 1, covered[hex.EncodeToString(e.SpanId)], name)
	}
	require.Len(t, covered, len(events), name)
}

// If the sampler rejects a trace, neither service exports spans of it: the projector does not
// decide again (its own sampler accepts everything, see traced).
func TestTraceThatIsNotSampledMakesNoSpans(t *testing.T) {
	r := &receiver{t: t}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.overHTTP())
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	traced(t, []any{
		bson.D{{Key: "aggregateId", Value: "a"}},
		bson.D{{Key: "aggregateId", Value: "b"}, {Key: "trace", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
	})
	require.Len(t, r.named("publish "+emulator.Topic), 1, "the one whose maker wants it")
	require.Len(t, r.named("process "+emulator.Topic+"/"+emulator.Subscription), 1)
}

// A collector that refuses, or does not exist, costs spans and nothing else.
func TestTracesWithoutACollectorDoNoHarm(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(refusing.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	ended := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { <-ended }))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(ended) })
	for name, endpoint := range map[string]string{"refused": refusing.URL, "no server": gone.URL, "never answered": silent.URL} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			traced(t, []any{bson.D{{Key: "aggregateId", Value: "a"}}, bson.D{{Key: "aggregateId", Value: "b"}}})
		})
	}
}
