package tracing

import (
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// The lengths of a traceparent of version 00: "00-" trace id "-" span id "-" flags [W3C Trace
// Context, section 3.2.2].
const (
	versionEnd = 2
	traceEnd   = versionEnd + 1 + 32
	spanEnd    = traceEnd + 1 + 16
	length     = spanEnd + 1 + 2
)

// TraceParent is the W3C traceparent of a span; empty if the span has none.
func TraceParent(c trace.SpanContext) string {
	if !c.IsValid() {
		return ""
	}
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + (c.TraceFlags() & trace.FlagsSampled).String()
}

// Remote is the span of another process that a traceparent identifies. It is not valid if the text
// is not a traceparent: a lost trace is no reason to fail. Of a later version, Remote reads the
// parts that version 00 has.
func Remote(traceparent string) trace.SpanContext {
	var none trace.SpanContext
	if len(traceparent) < length || strings.ToLower(traceparent) != traceparent {
		return none
	}
	version := traceparent[:versionEnd]
	switch {
	case version == "ff", version == "00" && len(traceparent) != length, len(traceparent) > length && traceparent[length] != '-':
		return none
	case traceparent[versionEnd] != '-' || traceparent[traceEnd] != '-' || traceparent[spanEnd] != '-':
		return none
	}
	if _, err := hex.DecodeString(version); err != nil {
		return none
	}
	traceID, err := trace.TraceIDFromHex(traceparent[versionEnd+1 : traceEnd])
	if err != nil {
		return none
	}
	spanID, err := trace.SpanIDFromHex(traceparent[traceEnd+1 : spanEnd])
	if err != nil {
		return none
	}
	flags, err := hex.DecodeString(traceparent[spanEnd+1 : length])
	if err != nil {
		return none
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	})
}
