package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/tests/internal/kusto"
)

// rule is an alert on logs in the templates.
type rule struct {
	query, column, operator string
	threshold               float64
	window, frequency       time.Duration
	of, failing             int
}

// rules returns the alerts on logs, by name, with default settings.
func rules(t *testing.T) map[string]rule {
	t.Helper()
	found := map[string]rule{}
	numbers := map[string]string{"oplogHours * 30": "720", "lagSeconds": "30", "lagSeconds * 10": "300"}
	for name, l := range list(t, "logs") {
		text := func(field ...string) string { return l.At(field...).Text }
		duration := func(field string) time.Duration {
			d, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(text(field), "PT")))
			require.NoError(t, err, name)
			return d
		}
		threshold := text("threshold")
		if computed, ok := numbers[threshold]; ok {
			threshold = computed
		}
		n, err := strconv.ParseFloat(threshold, 64)
		require.NoError(t, err, "%s: %s", name, threshold)
		r := rule{
			query: read(t, "infra/queries/"+name+".kql"), column: text("column"), operator: text("operator"), threshold: n,
			window: duration("window"), frequency: duration("frequency"), of: 1, failing: 1,
		}
		for from, to := range map[string]string{"{{producer}}": "producer", "{{projector}}": "projector", "{{oplogMinutes}}": "1440"} {
			r.query = strings.ReplaceAll(r.query, from, to)
		}
		if _, ok := l.Field("periods"); ok {
			r.of, _ = strconv.Atoi(text("periods", "of"))
			r.failing, _ = strconv.Atoi(text("periods", "failing"))
		}
		require.NotZero(t, r.failing, name)
		found[name] = r
	}
	return found
}

// late is how long a record takes to arrive in the workspace.
const late = 2 * time.Minute

// fires reports whether an evaluation at the time now finds the condition true.
func (r rule) fires(t *testing.T, logs drill, now time.Time) bool {
	t.Helper()
	within := func(rows []kusto.Row) (seen []kusto.Row) {
		for _, row := range rows {
			if at, _ := row["TimeGenerated"].(time.Time); at.After(now.Add(-r.window)) && !at.Add(logs.late(at)).After(now) {
				seen = append(seen, row)
			}
		}
		return seen
	}
	rows, err := kusto.Run(r.query, map[string][]kusto.Row{
		"ContainerAppConsoleLogs": within(logs.console), "ContainerAppSystemLogs": within(logs.system),
	}, now)
	require.NoError(t, err)
	for _, row := range rows {
		var v float64
		switch n := row[r.column].(type) {
		case nil:
			continue
		case int64:
			v = float64(n)
		case float64:
			v = n
		default:
			require.Fail(t, "no number", "%T", n)
		}
		if r.operator == "GreaterThan" && v > r.threshold || r.operator == "LessThan" && v < r.threshold {
			return true
		}
	}
	return false
}

// first returns when each alert first fires in the minutes after the failure, which begins at from.
func first(t *testing.T, logs drill, from time.Time, minutes int) map[string]int {
	t.Helper()
	found := map[string]int{}
	for name, r := range rules(t) {
		var failing []bool
		for minute := -30; minute <= minutes; minute++ {
			if time.Duration(minute)*time.Minute%r.frequency != 0 {
				continue
			}
			failing = append(failing, r.fires(t, logs, from.Add(time.Duration(minute)*time.Minute)))
			of := failing[max(0, len(failing)-r.of):]
			held := 0
			for _, f := range of {
				if f {
					held++
				}
			}
			if len(of) == r.of && held >= r.failing {
				found[name] = minute
				break
			}
		}
	}
	return found
}

// drill is what a pipeline has logged, and how long a record of a given time takes to arrive; nil
// is the usual delay.
type drill struct {
	console, system []kusto.Row
	delay           func(at time.Time) time.Duration
}

func (d drill) late(at time.Time) time.Duration {
	if d.delay == nil {
		return late
	}
	return d.delay(at)
}

// An alert on silence lasts as long as the silence: no record arrives that could end it, and it
// does not depend on records from before.
func TestAnAlertOnSilenceLastsAsLongAsTheSilence(t *testing.T) {
	for _, name := range []string{"producer-silent", "watch-silent"} {
		require.True(t, rules(t)[name].fires(t, drill{}, time.Date(2026, 2, 7, 15, 0, 0, 0, time.UTC)), name)
	}
}

// moment is the state of a pipeline at one time, which determines what its programs log. A failure
// changes it.
type moment struct {
	leader, standby producer.Status
	roles           []string // of the two producers
	projector       projector.Status
	projecting      bool
	waiting, dead   int64
	parked          int64
	watching        bool
	producers       bool
	event           func(*slog.Logger) // what a producer logs in addition
	platform        string             // what the platform logs about the projector
}

// reported logs a status as a service does.
func reported(status any) func(*slog.Logger) {
	return func(l *slog.Logger) {
		ended, end := context.WithCancel(context.Background())
		end()
		telemetry.ReportStatus(ended, l, time.Hour, func() any { return status })
	}
}

// runs writes the log of a pipeline from an hour before the failure until an hour after it. change
// turns the healthy pipeline into its state at a time after the failure.
func runs(t *testing.T, from time.Time, change func(m *moment, since time.Duration)) (logs drill) {
	t.Helper()
	var applied int64
	record := func(app, instance string, at time.Time, write func(*slog.Logger)) {
		var b bytes.Buffer
		write(telemetry.Logger(&b, slog.LevelInfo, strings.TrimSuffix(app, "-job"), instance))
		for line := range strings.Lines(b.String()) {
			logs.console = append(logs.console, kusto.Row{"TimeGenerated": at, "ContainerAppName": app, "Log": strings.TrimSpace(line)})
		}
	}
	for since := -time.Hour; since <= time.Hour; since += 15 * time.Second {
		at := from.Add(since)
		headroom := int64(86400)
		m := moment{
			leader:  producer.Status{Stream: "shop.events", Role: "leader", CheckpointAgeMS: 900, BehindMS: 400, LagMS: 300, OplogHeadroomSeconds: &headroom},
			standby: producer.Status{Stream: "shop.events", Role: "standby", CheckpointAgeMS: 950, BehindMS: 500, LagMS: 500},
			roles:   []string{"leader", "standby"}, producers: true, projecting: true, watching: true,
			projector: projector.Status{Projection: "timeline", LagMS: 200, Applied: applied + 150},
		}
		change(&m, since)
		applied = m.projector.Applied
		if m.producers {
			for i, role := range m.roles {
				status := map[string]producer.Status{"leader": m.leader, "standby": m.standby}[role]
				record("producer", fmt.Sprint("producer-", i), at, reported(status))
			}
		}
		if m.event != nil {
			record("producer", "producer-0", at, m.event)
		}
		if m.projecting {
			record("projector", "projector-0", at, reported(m.projector))
		}
		if m.watching && since%(5*time.Minute) == 0 {
			record("", "watch", at, func(l *slog.Logger) {
				telemetry.LogWatched(l, map[string]any{
					"projection": "timeline", "parked": m.parked, "waiting_sessions": m.waiting, "dead_letters": m.dead,
				})
			})
		}
		if m.platform != "" && since%time.Minute == 0 {
			logs.system = append(logs.system, kusto.Row{"TimeGenerated": at, "ContainerAppName": "projector", "Reason": m.platform, "Log": "x"})
		}
	}
	return logs
}

// A healthy pipeline fires no alert: with traffic, without any, throttled by Service Bus, and while
// a rollout moves leadership.
func TestAHealthyPipelineFiresNoAlert(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC)
	for name, change := range map[string]func(*moment, time.Duration){
		"healthy": func(*moment, time.Duration) {},
		"quiet": func(m *moment, _ time.Duration) {
			m.projector.Applied, m.projector.LagMS = 7, 250_000 // the last change was late, long ago
			m.leader.LagMS, m.leader.BehindMS = 20, 10_000
		},
		"nothing was ever published": func(m *moment, _ time.Duration) {
			m.projector = projector.Status{Projection: "timeline", LagMS: -1}
			m.leader.LagMS, m.leader.BehindMS, m.leader.OplogHeadroomSeconds = -1, -1, nil
			m.standby.BehindMS, m.standby.LagMS = -1, -1
		},
		"throttled": func(m *moment, since time.Duration) {
			m.waiting = 40 // it makes progress, slowly
			if since > 0 && since < 10*time.Minute {
				m.leader.LagMS, m.leader.BehindMS = 20_000, 20_000
				m.projector.LagMS = 4_000
			}
		},
		"rollout": func(m *moment, since time.Duration) {
			if since == 0 {
				m.roles = []string{"standby", "standby"}
			} else if since > 0 {
				m.roles = []string{"standby", "leader"}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			logs := runs(t, from, change)
			require.Empty(t, first(t, logs, from, 60))
			if name == "healthy" || name == "quiet" {
				logs.delay = func(at time.Time) time.Duration {
					if at.Before(from) {
						return late
					}
					return max(late, from.Add(8*time.Minute).Sub(at))
				}
				require.Empty(t, first(t, logs, from, 60), "late records: those of six minutes arrive together, eight minutes after the first")
			}
		})
	}
}

// failure is one of the failures in the table of infra/README.md: what is logged, or the metric
// that shows it.
type failure struct {
	what   string
	alert  string // which fires first
	change func(m *moment, since time.Duration)
	metric string // instead of a change: the alert on a metric
}

// after applies a change once the failure has begun.
func after(change func(m *moment, since time.Duration)) func(*moment, time.Duration) {
	return func(m *moment, since time.Duration) {
		if since >= 0 {
			change(m, since)
		}
	}
}

// once logs something at the failure.
func once(write func(*slog.Logger)) func(*moment, time.Duration) {
	return func(m *moment, since time.Duration) {
		if since == 0 {
			m.event = write
		}
	}
}

// stopped is a leader that publishes nothing from the failure on: its oldest event becomes older
// and older.
var stopped = after(func(m *moment, since time.Duration) {
	m.leader.LagMS, m.leader.BehindMS, m.leader.InFlight = since.Milliseconds(), since.Milliseconds(), 1000
	m.projector.Applied -= 150
})

// away is a projector that makes no progress.
var away = after(func(m *moment, _ time.Duration) {
	m.projector.Applied -= 150
	m.waiting = 40
})

const replaced = "the watched collection was replaced: the documents that came with the new one are not in the change stream"

var failures = []failure{
	{what: "no replica of the producer runs", alert: "producer-gone", metric: "producer-gone"},
	{what: "the producer crashes when it starts", alert: "producer-restarts", metric: "producer-restarts"},
	{what: "the producers run and their logs do not arrive", alert: "producer-silent", change: after(func(m *moment, _ time.Duration) { m.producers = false })},
	{what: "no producer can lead: storage refuses", alert: "no-leader", change: after(func(m *moment, _ time.Duration) { m.roles = []string{"standby", "standby"} })},
	{what: "storage fails requests", alert: "storage", metric: "storage"},
	{what: "the topic is full, and sends fail", alert: "publishing-behind", change: stopped},
	{what: "the producer has lost its right to send", alert: "publishing-behind", change: stopped},
	{what: "the change stream hangs", alert: "publishing-behind", change: stopped},
	{what: "two producers take leadership from each other and publish nothing", alert: "publishing-behind", change: after(func(m *moment, since time.Duration) {
		stopped(m, since)
		if since/(15*time.Second)%2 == 0 {
			slices.Reverse(m.roles)
		}
	})},
	{what: "another subscription is not read, and the topic fills", alert: "topic-full", metric: "topic-full"},
	{what: "a leader cannot write its checkpoint", alert: "checkpoint-old", change: after(func(m *moment, since time.Duration) {
		m.leader.CheckpointAgeMS, m.standby.CheckpointAgeMS = since.Milliseconds(), since.Milliseconds()
	})},
	{what: "the oplog is written so fast that half of it is used up", alert: "oplog-headroom", change: after(func(m *moment, _ time.Duration) {
		headroom := int64(40_000)
		m.leader.OplogHeadroomSeconds = &headroom
	})},
	{what: "history is lost, or a setting is wrong", alert: "errors", change: once(func(l *slog.Logger) { l.Error("producer failed", telemetry.KeyError, "history is lost") })},
	{what: "the watched collection is replaced", alert: "collection-replaced", change: once(func(l *slog.Logger) { l.Warn(replaced) })},
	{what: "Service Bus refuses a message for good (`ON_REFUSED=park`)", alert: "refused", change: after(func(m *moment, _ time.Duration) { m.leader.Parked = 1 })},
	{what: "no projector runs, or none gets on", alert: "stalled", change: away},
	{what: "no projector runs, or none gets on", alert: "stalled", change: after(func(m *moment, since time.Duration) {
		away(m, since)
		m.projecting = false // it logs nothing, so the job that watches it must show it
	})},
	{what: "the read models' database is slow", alert: "lag", change: after(func(m *moment, _ time.Duration) { m.projector.LagMS = 45_000 })},
	{what: "one change in ten is not visible within 5 s", alert: "slo-fast", change: after(func(m *moment, since time.Duration) {
		if since/(15*time.Second)%10 == 0 {
			m.projector.LagMS = 6_000
		}
	})},
	{what: "an event cannot be applied, and its aggregate is parked", alert: "parked", change: after(func(m *moment, _ time.Duration) { m.parked = 1 })},
	{what: "messages are dead-lettered", alert: "dead-letters", change: after(func(m *moment, _ time.Duration) { m.dead = 3 })},
	{what: "the scaler cannot count, or an image cannot be pulled", alert: "platform", change: after(func(m *moment, _ time.Duration) { m.platform = "KEDAScalerFailed" })},
	{what: "Service Bus turns requests away", alert: "throttled", metric: "throttled"},
	{what: "the job that watches logs nothing", alert: "watch-silent", change: after(func(m *moment, _ time.Duration) { m.watching = false })},
	{what: "the checkpoint is no longer copied", alert: "copies-failed", metric: "copies-failed"},
}

// minutesOf returns how long an alert on a metric takes: the window, if the condition must hold
// during all of it, otherwise the time to the next evaluation.
func minutesOf(t *testing.T, name string) int {
	t.Helper()
	m, found := list(t, "metrics")[name]
	require.True(t, found, name)
	if m.At("operator").Text == "GreaterThan" {
		return 2
	}
	d, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(m.At("window").Text, "PT")))
	require.NoError(t, err)
	return int(d.Minutes()) + 1
}

// For each failure the alert that the table of infra/README.md lists first fires, after the number
// of minutes in the table. Every alert on logs has a drill.
func TestEachFailureFiresItsAlert(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC)
	readme := read(t, "infra/README.md")
	drilled := map[string]bool{}
	for _, f := range failures {
		t.Run(f.what, func(t *testing.T) {
			var minutes int
			others := ""
			if f.metric != "" {
				minutes = minutesOf(t, f.metric)
			} else {
				fired := first(t, runs(t, from, f.change), from, 60)
				require.Contains(t, fired, f.alert, "%v", fired)
				minutes = fired[f.alert]
				require.Positive(t, minutes, "not before it")
				for name := range fired {
					drilled[name] = true
				}
				for name, when := range fired {
					require.GreaterOrEqual(t, when, minutes, "%s is first", name)
				}
				delete(fired, f.alert)
				others = strings.Join(slices.Sorted(maps.Keys(fired)), ", ")
			}
			row := fmt.Sprintf("| %s | `sluice-%s` | %d | %s |", f.what, f.alert, minutes, others)
			row = strings.ReplaceAll(row, "|  |", "| |")
			require.True(t, strings.Contains(readme, "\n"+row+"\n"), "infra/README.md lacks the row %s", row)
		})
	}
	for name := range rules(t) {
		require.True(t, drilled[name], "%s has no drill", name)
	}
}

// The records of the watching job in the drills have the fields that the job logs.
func TestDrillRecordsHaveTheFieldsOfRealOnes(t *testing.T) {
	logs := runs(t, time.Now(), func(*moment, time.Duration) {})
	watchable := watchFields(t)
	checked := 0
	for _, row := range logs.console {
		var record struct {
			Msg     string
			Watched map[string]any
		}
		text, _ := row["Log"].(string)
		require.NoError(t, json.Unmarshal([]byte(text), &record))
		for field := range record.Watched {
			checked++
			require.True(t, watchable[field], field)
		}
	}
	require.Positive(t, checked)
	sources := productSources(t)
	for _, message := range []string{replaced, "producer failed"} {
		require.True(t, strings.Contains(sources, `"`+message+`"`), message)
	}
}
