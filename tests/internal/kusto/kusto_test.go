package kusto

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// records are four lines of a log, a minute apart. The last one is not JSON.
var records = map[string][]Row{"Logs": {
	{"TimeGenerated": noon.Add(-4 * time.Minute), "App": "a", "Log": `{"msg": "status", "n": 1, "lag": 250}`},
	{"TimeGenerated": noon.Add(-3 * time.Minute), "App": "b", "Log": `{"msg": "status", "n": 7}`},
	{"TimeGenerated": noon.Add(-2 * time.Minute), "App": "a", "Log": `{"msg": "status", "n": 5, "lag": 750}`},
	{"TimeGenerated": noon.Add(-1 * time.Minute), "App": "a", "Log": `no JSON`},
}, "Empty": nil}

// The queries of the alerts rely on these rules, which the reference of Kusto describes.
func TestQueriesFollowTheKustoReference(t *testing.T) {
	for query, want := range map[string][]Row{
		"Logs | where App == 'b' | project App":                       {{"App": "b"}},
		"Logs | where App in ('b', 'c') | project App":                {{"App": "b"}},
		"Logs | where TimeGenerated > ago(2m) | project App":          {{"App": "a"}},
		"Logs | where Log matches regex @'(?i)NO json' | project App": {{"App": "a"}},
		// A comparison with null is neither true nor false, and text that is not JSON has no
		// fields.
		"Logs | extend line = parse_json(Log) | where tolong(line.lag) >= 0 | summarize n = count()":          {{"n": int64(2)}},
		"Logs | extend line = parse_json(Log) | where tostring(line.msg) == '' | summarize n = count()":       {{"n": int64(1)}},
		"Logs | extend line = parse_json(Log) | where isnull(line.lag) | summarize n = count()":               {{"n": int64(2)}},
		"Logs | extend line = parse_json(Log) | summarize worst = max(tolong(line.lag)) / 1000.0":             {{"worst": 0.75}},
		"Logs | extend line = parse_json(Log) | summarize whole = max(tolong(line.lag)) / 500":                {{"whole": int64(1)}},
		"Logs | extend line = parse_json(Log) | summarize n = sum(tolong(line.n)) by App":                     {{"App": "a", "n": int64(6)}, {"App": "b", "n": int64(7)}},
		"Logs | extend line = parse_json(Log) | summarize least = minif(tolong(line.n), tolong(line.n) > 1)":  {{"least": int64(5)}},
		"Logs | summarize m = dcount(bin(TimeGenerated, 2m))":                                                 {{"m": int64(2)}},
		"Logs | summarize newest = max(TimeGenerated) | project s = datetime_diff('second', ago(0m), newest)": {{"s": int64(60)}},
		"Logs | summarize arg_max(TimeGenerated, Log) by App | where App == 'a' | project Log":                {{"Log": `no JSON`}},
		"Logs | summarize count()": {{"count_": int64(4)}},
		// Without "by" there is one row, even for an empty table; with it, no row.
		"Empty | summarize n = count(), most = max(TimeGenerated)":                                                   {{"n": int64(0), "most": nil}},
		"Empty | summarize n = count() by App":                                                                       nil,
		"let a = toscalar(Empty | summarize sum(n)); Logs | where coalesce(a, long(0)) == 0 | summarize n = count()": {{"n": int64(4)}},
		// prev refers to the rows in their order, and the first row has no previous one.
		"Logs | order by App asc, TimeGenerated asc | where App == prev(App) | summarize n = count()": {{"n": int64(2)}},
		"Logs | order by TimeGenerated | project App | where isnull(prev(App))":                       {{"App": "a"}},
		"Logs | project x = iff(App == 'b', min_of(2, 3), max_of(2, 3)) | summarize total = sum(x)":   {{"total": int64(11)}},
		"Logs | project x = strcat(column_ifexists('Reason', ''), App) | where x == 'b'":              {{"x": "b"}},
	} {
		rows, err := Run(query, records, noon)
		require.NoError(t, err, query)
		require.Equal(t, want, rows, query)
	}
}

// An unsupported query is an error, and never an alert that cannot fire.
func TestUnsupportedQueriesAreErrors(t *testing.T) {
	for _, query := range []string{
		"Nowhere | summarize n = count()", "Logs | take 3", "Logs | where nothing == 1", "Logs | project x = percentile(App, 99)",
		"Logs | where App == 3", "Logs | where count() > 1", "Logs | project App App",
	} {
		_, err := Run(query, records, noon)
		require.Error(t, err, query)
	}
}
