package pipeline

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/tracing"
)

// What the metrics and the traces show of a batch: what was received, what each attempt decided,
// and what was settled.

// observeReceived counts the messages of a batch, which were requested at called, and begins its
// spans.
func (h *handler) observeReceived(ctx context.Context, called time.Time, messages []*azservicebus.ReceivedMessage, b *batch) {
	h.metrics.batchSize.Observe(float64(len(messages)))
	for _, message := range messages {
		if message.DeliveryCount > 1 {
			h.metrics.redelivered.Add(1)
			h.metrics.redeliveries.Inc()
		}
	}
	b.spans = follow(ctx, h.opts.Tracer, h.opts.Entity.String(), called, b)
}

// observeApplied counts what an attempt has decided, and ends its span and those of the events that
// it has decided.
func (h *handler) observeApplied(b *batch, span trace.Span, took time.Duration, a attempt) {
	endSpan(span, a.err)
	b.endSpans()
	m := h.metrics
	m.projectionsHanging.Set(float64(h.opts.Applier.Hanging()))
	if a.err == nil {
		m.applySeconds.Observe(took.Seconds())
	}
	if a.err != nil || len(a.failures) > 0 {
		m.applyFailures.Inc()
	}
	now := time.Now()
	for i, r := range b.results {
		switch r.Kind {
		case apply.Applied:
			m.events.Add(1)
			m.appliedTotal.Inc()
			if made := b.changes[i].Time; !made.IsZero() {
				lag := max(now.Sub(made), 0)
				m.latency.Observe(lag.Seconds())
				m.lag.Store(lag.Milliseconds())
			}
		case apply.Duplicate:
			m.duplicates.Add(1)
			m.duplicatesTotal.Inc()
		case apply.Poison:
			select {
			case m.newlyParked <- struct{}{}:
			default:
			}
		case apply.Pending, apply.Parked, apply.Gap:
		}
	}
}

// observeSettled counts what was settled, and ends the span of it.
func (h *handler) observeSettled(settlements []settlement, span trace.Span, took time.Duration, err error) {
	endSpan(span, err)
	h.metrics.settleSeconds.Observe(took.Seconds())
	if err != nil {
		h.metrics.settleFailures.Inc()
		return
	}
	for _, s := range settlements {
		if s.action == deadLetter {
			h.metrics.dead.Add(1)
			h.metrics.deadLettered.WithLabelValues(s.reason).Inc()
		}
	}
}

// spans continues the traces of a batch's events where the producer's spans ended: one span for
// each event, from its receipt until it is decided, and one for each step of the batch (receive,
// apply, settle). Those are in the trace of the first event that has one, and linked to the others.
// nil traces nothing, at no cost.
type spans struct {
	tracer   trace.Tracer
	entity   string
	parent   trace.Span   // of the batch's spans
	links    []trace.Link // to the other events
	messages int
}

// follow begins the spans of a batch; called is when it was requested. It returns nil if no event's
// trace is sampled.
func follow(ctx context.Context, tracer trace.Tracer, entity string, called time.Time, b *batch) *spans {
	if tracer == nil {
		return nil
	}
	now := time.Now()
	s := &spans{tracer: tracer, entity: entity, messages: b.len()}
	received := called
	for i := range b.events {
		m := b.events[i].message
		remote := tracing.Remote(b.changes[i].TraceParent)
		if !remote.IsSampled() {
			continue // the producer decided not to sample it, and half a trace is of no use
		}
		_, span := tracer.Start(trace.ContextWithRemoteSpanContext(ctx, remote), "process "+entity,
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(arrived(m, called, now)),
			trace.WithAttributes(s.attributes("process",
				attribute.String("messaging.message.id", m.MessageID),
				attribute.String("sluice.stream", b.changes[i].Stream),
				attribute.String("sluice.aggregate", b.changes[i].Aggregate),
				attribute.String("sluice.position", b.changes[i].Position),
				attribute.Int64("sluice.epoch", b.changes[i].Epoch),
				attribute.Int64("messaging.servicebus.message.delivery_count", int64(m.DeliveryCount)),
			)...))
		b.events[i].span = span
		if s.parent != nil {
			s.links = append(s.links, trace.Link{SpanContext: span.SpanContext()})
			continue
		}
		s.parent, received = span, arrived(m, called, now)
	}
	if s.parent == nil {
		return nil
	}
	s.start(ctx, "receive", trace.SpanKindClient, trace.WithTimestamp(received)).End(trace.WithTimestamp(now))
	return s
}

// arrived returns when the receipt of a message began: when the call was made, or, if the call then
// waited for the message, when it was enqueued by the broker's clock.
func arrived(m *azservicebus.ReceivedMessage, called, now time.Time) time.Time {
	if m.EnqueuedTime == nil || m.EnqueuedTime.Before(called) {
		return called
	}
	if m.EnqueuedTime.After(now) {
		return now
	}
	return *m.EnqueuedTime
}

// start begins a span of the batch. It must not be called on nil.
func (s *spans) start(ctx context.Context, operation string, kind trace.SpanKind, more ...trace.SpanStartOption) trace.Span {
	_, span := s.tracer.Start(trace.ContextWithSpan(ctx, s.parent), operation+" "+s.entity,
		append([]trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithLinks(s.links...), trace.WithAttributes(
			s.attributes(operation, attribute.Int("messaging.batch.message_count", s.messages))...)}, more...)...)
	return span
}

// applying begins the span of one attempt to write the batch.
func (s *spans) applying(ctx context.Context) trace.Span {
	if s == nil {
		return nil
	}
	return s.start(ctx, "apply", trace.SpanKindInternal)
}

// settling begins the span of settling the batch.
func (s *spans) settling(ctx context.Context) trace.Span {
	if s == nil {
		return nil
	}
	return s.start(ctx, "settle", trace.SpanKindClient)
}

// endSpans ends the spans of the events that are decided: their effects are committed, or will
// never be.
func (b *batch) endSpans() {
	for i := range b.events {
		span, result := b.events[i].span, b.results[i]
		if span == nil || !decided(result) {
			continue
		}
		outcome := "refused" // the status is the reason
		switch result.Kind {
		case apply.Applied:
			outcome = "applied"
		case apply.Duplicate:
			outcome = "duplicate"
		default:
			span.SetStatus(codes.Error, result.Reason)
		}
		span.SetAttributes(attribute.String("sluice.outcome", outcome))
		span.End()
		b.events[i].span = nil
	}
}

// abandonSpans ends the spans of all events: their messages will be delivered again.
func (b *batch) abandonSpans() {
	for i := range b.events {
		if span := b.events[i].span; span != nil {
			span.SetStatus(codes.Error, "not decided before the session was released")
			span.End()
		}
	}
}

func (s *spans) attributes(operation string, more ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{
		attribute.String("messaging.system", "servicebus"),
		attribute.String("messaging.destination.name", s.entity),
		attribute.String("messaging.operation.type", operation),
	}, more...)
}

// endSpan ends a span that may be nil.
func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
