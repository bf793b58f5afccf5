package deploy

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

var (
	statusField = regexp.MustCompile(`line\.status\.(\w+)`)
	placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)
	message     = regexp.MustCompile(`line\.msg\) (?:==|in) \(?((?:'[^']*'(?:, )?)+)`)
	quoted      = regexp.MustCompile(`'([^']*)'`)
)

// checkQuery holds a query against what the services really log.
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
			t.Errorf("%s: nobody fills in {{%s}}", name, app)
		}
	}
	require.NotEmpty(t, uses, "%s: of which app?", name)
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

// productSources is the text of all code of the services that is not a test.
func productSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, module := range []string{"producer", "projector", "shared"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, module), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		}))
	}
	return all.String()
}

// list is the value of a variable of alerts.bicep that holds objects, by their name.
func list(t *testing.T, name string) map[string]bicep.Value {
	t.Helper()
	v, ok := template(t, "modules/alerts.bicep").Find("var", name)
	require.True(t, ok)
	found := map[string]bicep.Value{}
	for _, item := range v.Value.Items {
		n, _ := item.Field("name")
		found[n.Text] = item
	}
	require.NotEmpty(t, found)
	return found
}

// An alert on a field that no service reports would never fire.
func TestAlertsAskForWhatTheServicesLog(t *testing.T) {
	sources := productSources(t)
	used := map[string]bool{}
	for name, alert := range list(t, "logs") {
		load, _ := alert.Field("query")
		require.Equal(t, "loadTextContent ( ../queries/"+name+".kql )", load.Text)
		used[name+".kql"] = true
		query := read(t, "infra/queries/"+name+".kql")
		checkQuery(t, name, query, sources)
		column, _ := alert.Field("column")
		lines := strings.Split(strings.TrimSpace(query), "\n")
		require.Contains(t, lines[len(lines)-1], " "+column.Text+" = ", "%s: the query's last line makes the column that is measured", name)
	}
	entries, err := os.ReadDir(filepath.Join(root, "infra", "queries"))
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, used[e.Name()], "infra/queries/%s is no alert's", e.Name())
	}
}

func TestWorkbookAsksForWhatTheServicesLog(t *testing.T) {
	var workbook struct {
		Version string
		Items   []struct {
			Type    int
			Name    string
			Content struct{ Query string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "infra/workbook.json")), &workbook))
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

// Whoever is woken by an alert finds what to do, and nothing about alerts that are no more.
func TestRunbookHasEveryAlert(t *testing.T) {
	alerts, entries := map[string]bool{}, map[string]bool{}
	for _, kind := range []string{"logs", "metrics"} {
		for name := range list(t, kind) {
			alerts[name] = true
		}
	}
	for _, m := range runbookEntry.FindAllStringSubmatch(read(t, "infra/README.md"), -1) {
		entries[m[1]] = true
	}
	require.Equal(t, sorted(alerts), sorted(entries))
}
