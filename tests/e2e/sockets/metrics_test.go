package sockets_test

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/tree"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// scrape reads /metrics of the service that writes this log, without the metrics of the runtime.
func (s *realStack) scrape(log *world.Recorder) map[string]*dto.MetricFamily {
	s.Helper()
	_, body, err := s.get(s.serving(log), "/metrics")
	require.NoError(s, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	require.NoError(s, err)
	for name := range families {
		if !strings.HasPrefix(name, "sluice_") {
			delete(families, name) // of the Go runtime and the process
		}
	}
	return families
}

// documentedMetrics returns the rows of docs/observe.md's table of a service's metrics: name, type
// and labels, meaning. A unit is in the name, or the metric counts something.
func documentedMetrics(t *testing.T, service string) (rows []string) {
	t.Helper()
	tree.Depend()
	text, err := os.ReadFile("../../../docs/observe.md")
	require.NoError(t, err)
	prefix := "sluice_" + service + "_"
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 6 && strings.HasPrefix(strings.Trim(cells[1], " `"), prefix) {
			name, unit := strings.Trim(cells[1], " `"), strings.TrimSpace(cells[3])
			require.Equal(t, strings.Contains(name, "_seconds"), unit == "s", name)
			require.Equal(t, strings.Contains(name, "_bytes"), unit == "bytes", name)
			rows = append(rows, strings.Join([]string{name, strings.TrimSpace(cells[2]), strings.TrimSpace(cells[4])}, " | "))
		}
	}
	return rows
}

func rows(families map[string]*dto.MetricFamily) (rows []string) {
	for name, f := range families {
		if name == "sluice_build_info" { // which both services have, and which the page names separately
			continue
		}
		var kind strings.Builder
		kind.WriteString(strings.ToLower(f.GetType().String()))
		for _, l := range f.Metric[0].Label {
			if l.GetName() != "stream" && l.GetName() != "projection" { // all metrics of a service have it
				kind.WriteString(" by `" + l.GetName() + "`")
			}
		}
		rows = append(rows, strings.Join([]string{name, kind.String(), f.GetHelp()}, " | "))
	}
	slices.Sort(rows)
	return rows
}

// value sums a metric over its labels: a counter's or gauge's value, the number of a histogram's
// observations.
func value(f *dto.MetricFamily) (sum float64) {
	for _, m := range f.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// The tables of docs/observe.md name every metric with its type, labels and meaning, and no other;
// and the metrics count.
func TestTheDocumentationListsEveryMetric(t *testing.T) {
	const events = 30
	s := newRealStack(t, false)
	// A busy machine must not cost the leader its leadership: the times of leadership are the
	// defaults.
	maps.Copy(s.settings, map[string]string{"HEARTBEAT_INTERVAL": "1s", "FENCE_AFTER": "4s", "TAKEOVER_AFTER": "6s"})
	producing, projecting := s.configured()
	ofProducer, toProducers := recorded()
	ofProjector, toProjectors := recorded()
	stop := s.run(producing, producer.Options{Logger: toProducers}, projecting, projector.Options{Logger: toProjectors})
	s.leads("a")
	s.insert(events)
	s.until("all is applied", func() bool { return s.stack.ServiceBus.Stats(s.stack.Route.Out()).Completed >= events })
	var p, q map[string]*dto.MetricFamily
	s.until("a heartbeat has been counted", func() bool {
		p = s.scrape(ofProducer)
		return value(p["sluice_producer_fence_margin_seconds"]) > 0
	})
	q = s.scrape(ofProjector)

	require.Equal(t, documentedMetrics(t, "producer"), rows(p))
	require.Equal(t, documentedMetrics(t, "projector"), rows(q))
	for name, f := range p {
		for _, m := range f.Metric {
			require.True(t, name == "sluice_build_info" || slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
				return l.GetName() == "stream" && l.GetValue() == "shop.events"
			}), "%s has the label stream", f.GetName())
		}
	}
	for name, f := range q {
		labelled := slices.ContainsFunc(f.Metric[0].Label, func(l *dto.LabelPair) bool { return l.GetName() == "projection" })
		require.Equal(t, strings.HasPrefix(name, "sluice_projector_"), labelled, "%s has the label projection", name)
	}
	require.InDelta(t, 1, value(p["sluice_build_info"]), 0)
	for name, want := range map[string]float64{
		"published_total": events, "leading": 1, "failed": 0, "epoch": 1, "terms_begun_total": 1, "terms_ended_total": 0, "in_flight": 0,
	} {
		require.InDelta(t, want, value(p["sluice_producer_"+name]), 0, name)
	}
	for name, want := range map[string]float64{
		"applied_total": events, "duplicates_total": 0, "latency_seconds": events, "deadlettered_total": 0, "parked_aggregates": 0, "projections_hanging": 0,
		"awaiting_build": 0, "build_events": 0,
	} {
		require.InDelta(t, want, value(q["sluice_projector_"+name]), 0, name)
	}
	for _, name := range []string{"sluice_producer_batch_size", "sluice_producer_send_seconds"} {
		require.NotZero(t, value(p[name]), name)
	}
	for _, name := range []string{"accept_seconds", "apply_seconds", "settle_seconds", "batch_size"} {
		require.NotZero(t, value(q["sluice_projector_"+name]), name)
	}
	for name, f := range p {
		require.False(t, strings.HasSuffix(name, "_seconds") && f.GetType() == dto.MetricType_GAUGE && value(f) < 0, name)
	}
	stop()
}
