package tracing

import (
	"encoding/hex"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// TraceParent returns the W3C traceparent of a span; empty if the span has none.
func TraceParent(c trace.SpanContext) string {
	if !c.IsValid() {
		return ""
	}
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + (c.TraceFlags() & trace.FlagsSampled).String()
}

// Remote returns the span of another process that a traceparent identifies. It is not valid if the
// text is not a traceparent: a lost trace is no reason to fail. Of a later version, Remote reads
// the parts that version 00 has.
func Remote(traceparent string) trace.SpanContext {
	// Version "-" trace id "-" span id "-" flags [W3C Trace Context, section 3.2.2]; version 00 has
	// no more.
	parts := strings.SplitN(traceparent, "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 || strings.ToLower(traceparent) != traceparent {
		return trace.SpanContext{}
	}
	_, versionErr := hex.DecodeString(parts[0])
	traceID, traceErr := trace.TraceIDFromHex(parts[1])
	spanID, spanErr := trace.SpanIDFromHex(parts[2])
	flags, flagsErr := hex.DecodeString(parts[3])
	if errors.Join(versionErr, traceErr, spanErr, flagsErr) != nil || len(flags) != 1 {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	})
}
