package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/tracing"
)

// spans makes a span for each event, from Publish to its acknowledgement, and for each send. A nil
// value makes none, at no cost.
type spans struct {
	tracer trace.Tracer
	entity string

	mu   sync.Mutex
	open map[trace.Span]struct{} // of unacknowledged events
}

func newSpans(tracer trace.Tracer, entity string) *spans {
	if tracer == nil {
		return nil
	}
	return &spans{tracer: tracer, entity: entity, open: map[trace.Span]struct{}{}}
}

// published starts the span of an event, as the child of the trace in the event, and writes the
// span's id into the event. It returns nil if the trace is not sampled; the event then carries that
// decision on.
func (s *spans) published(ctx context.Context, c *envelope.Change) trace.Span {
	if s == nil {
		return nil
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, tracing.Remote(c.TraceParent))
	_, span := s.tracer.Start(ctx, "publish "+s.entity, trace.WithSpanKind(trace.SpanKindProducer))
	c.TraceParent = tracing.TraceParent(span.SpanContext())
	if !span.IsRecording() {
		return nil
	}
	span.SetAttributes(s.attributes(
		attribute.String("messaging.message.id", envelope.InGeneration(envelope.MessageID(c.Stream, c.Token), c.Generation)),
		attribute.String("sluice.stream", c.Stream),
		attribute.String("sluice.aggregate", c.Aggregate),
		attribute.String("sluice.position", c.Position),
		attribute.String("sluice.operation", string(c.Operation)),
		attribute.String("sluice.event_type", c.Type),
		attribute.Int64("sluice.epoch", c.Epoch),
	)...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[span] = struct{}{}
	return span
}

// sending starts the span of a batch, in the trace of its first traced event, linked to the others.
// It returns nil if no event is traced.
func (s *spans) sending(ctx context.Context, items []*item) trace.Span {
	if s == nil {
		return nil
	}
	var parent trace.Span
	var links []trace.Link
	for _, i := range items {
		switch {
		case i.span == nil:
		case parent == nil:
			parent = i.span
		default:
			links = append(links, trace.Link{SpanContext: i.span.SpanContext()})
		}
	}
	if parent == nil {
		return nil
	}
	_, span := s.tracer.Start(trace.ContextWithSpan(ctx, parent), "send "+s.entity, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithLinks(links...),
		trace.WithAttributes(s.attributes(attribute.Int("messaging.batch.message_count", len(items)))...))
	return span
}

// sent ends the span of a batch.
func (s *spans) sent(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		fail(span, err)
	}
	span.End()
}

// acknowledged ends the spans of events.
func (s *spans) acknowledged(items []*item) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range items {
		if i.span != nil {
			i.span.End()
			delete(s.open, i.span)
		}
	}
}

// refused ends the span of an event that Service Bus refused.
func (s *spans) refused(i *item, why error) {
	if s == nil || i.span == nil {
		return
	}
	fail(i.span, why)
	s.acknowledged([]*item{i})
}

// abandon ends the remaining spans when the term ends. The next leader publishes their events, in
// traces of its own.
func (s *spans) abandon(err error) {
	if s == nil {
		return
	}
	why := errors.New("not acknowledged before the leadership ended")
	if err != nil {
		why = fmt.Errorf("%w: %w", why, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for span := range s.open {
		fail(span, why)
		span.End()
	}
	clear(s.open)
}

func (s *spans) attributes(more ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{
		attribute.String("messaging.system", "servicebus"),
		attribute.String("messaging.destination.name", s.entity),
		attribute.String("messaging.operation.type", "send"),
	}, more...)
}

func fail(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
