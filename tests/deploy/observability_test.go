package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

var (
	statusField = regexp.MustCompile(`line\.status\.(\w+)`)
	watchField  = regexp.MustCompile(`line\.watched\.(\w+)`)
	jsonTag     = regexp.MustCompile("`json:\"(\\w+)")
	placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)
	message     = regexp.MustCompile(`line\.msg\) (?:==|in) \(?((?:'[^']*'(?:, )?)+)`)
	quoted      = regexp.MustCompile(`'([^']*)'`)
)

// checkQuery compares a query with what the services log.
func checkQuery(t *testing.T, name, query, sources string) {
	t.Helper()
	uses := map[string]bool{}
	for _, m := range placeholder.FindAllStringSubmatch(query, -1) {
		uses[m[1]] = true
	}
	delete(uses, "oplogMinutes")
	known := map[string]bool{}
	for app := range uses {
		switch app {
		case "producer":
			addStatusFields(known, reflect.TypeFor[producer.Status]())
		case "projector":
			addStatusFields(known, reflect.TypeFor[projector.Status]())
		default:
			t.Errorf("%s: no value for {{%s}}", name, app)
		}
	}
	watched := watchField.FindAllStringSubmatch(query, -1)
	require.True(t, len(uses) > 0 || len(watched) > 0, "%s: of which app?", name)
	watchable := watchFields(t)
	for _, m := range watched {
		require.True(t, watchable[m[1]], "%s: projector status --log has no field %s", name, m[1])
	}
	for _, m := range statusField.FindAllStringSubmatch(query, -1) {
		require.True(t, known[m[1]], "%s: the status of %v has no field %s", name, sorted(uses), m[1])
	}
	for _, m := range message.FindAllStringSubmatch(query, -1) {
		for _, text := range quoted.FindAllStringSubmatch(m[1], -1) {
			require.True(t, strings.Contains(sources, `"`+text[1]+`"`), "%s: no service logs %q", name, text[1])
		}
	}
}

func addStatusFields(known map[string]bool, status reflect.Type) {
	for field := range status.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		known[name] = true
	}
}

// watchFields returns the fields that `projector status --log` logs; an end-to-end test proves that
// it does.
func watchFields(t *testing.T) map[string]bool {
	t.Helper()
	fields := map[string]bool{}
	for _, m := range jsonTag.FindAllStringSubmatch(read(t, "projector/internal/operator/watch.go"), -1) {
		fields[m[1]] = true
	}
	require.Greater(t, len(fields), 5)
	return fields
}

// productSources returns the text of all code of the services except tests.
func productSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, module := range []string{"producer", "projector", "shared"} {
		for name, text := range files(t, module, extension(".go")) {
			if !strings.HasSuffix(name, "_test.go") {
				all.WriteString(text)
			}
		}
	}
	return all.String()
}

// alerting are the templates with alerts.
var alerting = []string{"modules/alerts.bicep", "app/producer.bicep", "app/projector.bicep", "app/projection.bicep"}

// list returns the alerts of a kind, logs or metrics, of all templates, by their names.
func list(t *testing.T, kind string) map[string]bicep.Value {
	t.Helper()
	found := map[string]bicep.Value{}
	for _, path := range alerting {
		v, ok := template(t, path).Find("var", kind)
		require.True(t, ok || strings.HasPrefix(path, "app/pro"), path)
		for _, item := range v.Value.Items {
			name := item.At("name").Text
			require.NotContains(t, found, name)
			found[name] = item
		}
		require.Equal(t, ok, len(v.Value.Items) > 0)
	}
	return found
}

// An alert on a field that no service reports would never fire.
func TestAlertsUseFieldsThatTheServicesLog(t *testing.T) {
	sources := productSources(t)
	used := map[string]bool{}
	for name, alert := range list(t, "logs") {
		require.Equal(t, "loadTextContent ( ../queries/"+name+".kql )", alert.At("query").Text)
		used[name+".kql"] = true
		query := read(t, "infra/queries/"+name+".kql")
		checkQuery(t, name, query, sources)
		lines := strings.Split(strings.TrimSpace(query), "\n")
		require.Contains(t, lines[len(lines)-1], " "+alert.At("column").Text+" = ", "%s: the query's last line makes the column that is measured", name)
	}
	entries, err := os.ReadDir(filepath.Join(root, "infra", "queries"))
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, used[e.Name()], "infra/queries/%s is no alert's", e.Name())
	}
}

// platformMetrics are metrics of the platform, with their aggregations, by the type of the resource
// (Azure Monitor's reference, "Supported metrics").
var platformMetrics = map[string]map[string][]string{
	"Microsoft.ServiceBus/namespaces": {
		"ActiveMessages":       {"Average", "Minimum", "Maximum"},
		"Size":                 {"Average", "Minimum", "Maximum"},
		"ServerErrors":         {"Total"},
		"ThrottledRequests":    {"Total"},
		"NamespaceCpuUsage":    {"Average", "Maximum"},
		"NamespaceMemoryUsage": {"Average", "Maximum"},
	},
	"Microsoft.Storage/storageAccounts": {"Availability": {"Average", "Minimum", "Maximum"}},
	"Microsoft.App/containerapps":       {"Replicas": {"Average", "Minimum", "Maximum", "Total"}, "RestartCount": {"Average", "Minimum", "Maximum", "Total"}},
	"Microsoft.App/jobs":                {"Executions": {"Average", "Minimum", "Maximum", "Total"}},
}

// An alert on a metric that does not exist would never fire, and one on a metric of another tier
// would be refused.
func TestMetricAlertsUsePlatformMetrics(t *testing.T) {
	always := slices.Clip([]string{
		"copies-failed", "producer-gone", "producer-restarts", "projector-restarts", "service-bus-errors", "storage", "throttled", "topic-full", "watch-failed",
	})
	made := func(premium, others bool) []string {
		var names []string
		for name, m := range list(t, "metrics") {
			given := map[string]any{"premium": premium, "othersSubscribe": others}
			if evalValue(t, "modules/alerts.bicep", m.At("when"), given) == true {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	require.ElementsMatch(t, append(always, "backlog"), made(false, false))
	require.ElementsMatch(t, append(always, "backlog", "cpu", "memory"), made(true, false))
	require.ElementsMatch(t, always, made(false, true), "metrics count all subscriptions of a topic")
	for name, m := range list(t, "metrics") {
		kind := m.At("kind").Text
		for _, path := range alerting {
			if v, found := template(t, path).Find("var", kind); found {
				kind = v.Value.Text
			}
		}
		require.Contains(t, platformMetrics[kind][m.At("metric").Text], m.At("aggregation").Text, name)
	}
}

// Credits belong to the namespace: requests of its administration, such as the scaler's, belong to
// no entity.
func TestThrottlingIsCountedForTheNamespace(t *testing.T) {
	require.Equal(t, "[]", compact(list(t, "metrics")["throttled"].At("dimensions").Text))
}

// Every alert notifies the organisation's action groups as well as the address.
func TestEveryAlertNotifiesEveryGroup(t *testing.T) {
	groups := find(t, "modules/alerts.bicep", "var", "actionGroupIds")
	require.Contains(t, compact(groups.Value.Text), "empty(existingActionGroupIds)?[]:split(existingActionGroupIds,,)")
	for _, path := range alerting {
		for _, m := range template(t, path).All("module") {
			if strings.Contains(m.Type, "-alerts.bicep") {
				require.Equal(t, "actionGroupIds", m.Value.At("params", "actionGroupIds").Text, "%s: %s", path, m.Name)
			}
		}
	}
	for _, s := range services {
		require.Equal(t, "${ALERT_ACTION_GROUP_IDS}", parameterFile(t, "infra/app/"+s.name+".parameters.json")["actionGroupIds"])
	}
}

// The table of costs adds up.
func TestTheCostsAddUp(t *testing.T) {
	_, rows, found := strings.Cut(read(t, "infra/README.md"), "\n| sizes |")
	require.True(t, found)
	rows, _, _ = strings.Cut(rows, "\n\n")
	sums := make([]int, 4)
	number := regexp.MustCompile(`^\**([\d,]+)`)
	for line := range strings.Lines(rows) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 5 || strings.Contains(line, "always") {
			continue
		}
		for i := range sums {
			n := 0
			if m := number.FindStringSubmatch(strings.TrimSpace(cells[i+1])); m != nil {
				var err error
				n, err = strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
				require.NoError(t, err)
			}
			if strings.Contains(cells[0], "together") {
				require.Equal(t, sums[i], n, "column %d", i+1)
			}
			sums[i] += n
		}
	}
	require.Positive(t, sums[3])
	require.Contains(t, rows, "together")
}

func TestTheWorkbookUsesFieldsThatTheServicesLog(t *testing.T) {
	var workbook struct {
		Version             string
		FallbackResourceIds []string `json:"fallbackResourceIds"`
		Items               []struct {
			Type    int
			Name    string
			Content struct{ Query string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "infra/workbook.json")), &workbook))
	require.Equal(t, []string{"{{workspace}}"}, workbook.FallbackResourceIds, "opened from the resource group it has no other resource")
	require.Contains(t, read(t, "infra/modules/workbook.bicep"), "workspace: workspaceId")
	sources := productSources(t)
	names := map[string]bool{}
	for _, item := range workbook.Items {
		require.False(t, names[item.Name], "two items named %s", item.Name)
		names[item.Name] = true
		if item.Type == 3 {
			checkQuery(t, item.Name, item.Content.Query, sources)
		}
	}
	require.Greater(t, len(names), 8)
}

var runbookEntry = regexp.MustCompile("(?m)^### `sluice-([a-z-]+)`")

// The runbook has a section for every alert, and none for an alert that no longer exists.
func TestRunbookHasEveryAlert(t *testing.T) {
	alerts, entries := map[string]bool{}, map[string]bool{}
	for _, kind := range []string{"logs", "metrics"} {
		for name := range list(t, kind) {
			alerts[name] = true
		}
	}
	health := find(t, "modules/alerts.bicep", "resource", "rulesHealth") // a rule that Azure has disabled is silent
	alerts[strings.TrimPrefix(health.Value.At("name").Text, "sluice-")] = true
	require.Contains(t, compact(health.Value.Text), "{field:categoryequals:ResourceHealth}{field:resourceTypeequals:Microsoft.Insights/scheduledQueryRules}")
	for _, m := range runbookEntry.FindAllStringSubmatch(read(t, "infra/README.md"), -1) {
		entries[m[1]] = true
	}
	require.Equal(t, sorted(alerts), sorted(entries))
	cost := fmt.Sprintf("| alert rules (%d on logs, ", len(list(t, "logs")))
	require.True(t, strings.Contains(read(t, "infra/README.md"), cost), "the table of costs in infra/README.md has no row %q", cost)
}

// Metrics cannot be read in Azure, so the runbook uses logs and status records.
func TestTheRunbookUsesNoMetrics(t *testing.T) {
	require.NotRegexp(t, `\bsluice_(producer|projector)_`, read(t, "infra/README.md"))
	require.Contains(t, read(t, "docs/observe.md"), "Container Apps scrapes nothing")
}
