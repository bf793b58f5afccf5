package tracing

import (
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// The lengths of a traceparent of version 00: "00-" trace id "-" span id "-" flags [W3C Trace Context, section 3.2.2].
const (
	versionEnd = 2
	traceEnd   = versionEnd + 1 + 32
	spanEnd    = traceEnd + 1 + 16
	length     = spanEnd + 1 + 2
)

// TraceParent is a span's place in its trace as the W3C's traceparent; empty of one that has none.
func TraceParent(c trace.SpanContext) string {
	if !c.IsValid() {
		return ""
	}
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + (c.TraceFlags() & trace.FlagsSampled).String()
}

// Remote is the span of another process that a traceparent names. It is not valid where the text is none: a trace that is
// lost is no reason to fail. Of a later version it reads what version 00 has.
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
