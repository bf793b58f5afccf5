package deploy

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

// The linter's rules that are errors. The tests below check those that can be checked without the
// compiler.
func TestTheLintersRulesAreErrors(t *testing.T) {
	var config struct {
		Analyzers struct {
			Core struct {
				Enabled bool
				Rules   map[string]struct{ Level string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "infra/bicepconfig.json")), &config))
	require.True(t, config.Analyzers.Core.Enabled)
	for _, rule := range []string{
		"no-module-name", "no-unnecessary-dependson", "use-recent-api-versions", "use-safe-access", "use-secure-value-for-secure-inputs",
		"use-user-defined-types", "what-if-short-circuiting",
	} {
		require.Equal(t, "error", config.Analyzers.Core.Rules[rule].Level, rule)
	}
}

// Parameters have types: an untyped object or array hides a misspelt field until Azure refuses it.
func TestParametersHaveTypes(t *testing.T) {
	for file, p := range declared(t, "param") {
		require.NotContains(t, []string{"object", "array"}, p.Type, "%s: %s", file, p.Name)
	}
	for file, m := range declared(t, "module") {
		_, named := m.Value.Field("name")
		require.False(t, named, "%s: module %s: the compiler names its deployment", file, m.Name)
	}
}

// old are the types whose newest stable API version is more than two years old, or has another
// form.
var old = map[string]string{
	"Microsoft.Authorization/locks":                         "2020-05-01",
	"Microsoft.Authorization/roleAssignments":               "2022-04-01",
	"Microsoft.Insights/actionGroups":                       "2023-01-01",
	"Microsoft.Insights/components":                         "2020-02-02",
	"Microsoft.Insights/diagnosticSettings":                 "2021-05-01-preview", // 2016-09-01, the stable one, is another form
	"Microsoft.Insights/workbooks":                          "2023-06-01",
	"Microsoft.Network/privateDnsZones":                     "2024-06-01",
	"Microsoft.Network/privateDnsZones/virtualNetworkLinks": "2024-06-01",
	"Microsoft.ServiceBus/namespaces/queues":                "2024-01-01",
	"Microsoft.ServiceBus/namespaces/topics":                "2024-01-01",
	"Microsoft.ServiceBus/namespaces/topics/subscriptions":  "2024-01-01",
}

// API versions are stable, and at most two years older than the last review of this deployment,
// unless a type has no newer one. Each type has one version: two would accept different properties.
func TestAPIVersionsAreRecent(t *testing.T) {
	const since = "2024-11-24"
	versions, seen := map[string]string{}, map[string]bool{}
	for file, r := range declared(t, "resource") {
		kind, version, _ := strings.Cut(r.Type, "@")
		if before, known := versions[kind]; known {
			require.Equal(t, before, version, "%s: %s", file, kind)
		}
		versions[kind] = version
		if known, is := old[kind]; is {
			require.Equal(t, known, version, "%s: %s", file, kind)
			seen[kind] = true
			continue
		}
		require.Regexp(t, `^\d{4}-\d\d-\d\d$`, version, "%s: %s: a preview", file, kind)
		require.GreaterOrEqual(t, version, since, "%s: %s", file, kind)
	}
	require.Equal(t, sorted(old), sorted(seen))
}

// A preview shows only what can be computed before the deployment starts. So the name, scope or
// condition of a resource in a module never depends on the output of another module.
func TestAPreviewCanComputeEveryName(t *testing.T) {
	checked := 0
	for file, m := range declared(t, "module") {
		names := namesOf(template(t, path.Join(path.Dir(file), m.Type)))
		for _, given := range m.Value.At("params").Fields {
			if !names[given.Name] {
				continue
			}
			checked++
			require.NotRegexp(t, `\boutputs\b`, given.Value.Text, "%s: %s: %s is part of a name in %s", file, m.Name, given.Name, m.Type)
		}
		require.NotRegexp(t, `\boutputs\b`, m.Condition, "%s: %s", file, m.Name)
	}
	require.Greater(t, checked, 40)
}

var identifier = regexp.MustCompile(`[A-Za-z_]\w*`)

// namesOf returns the parameters of a template that a resource's name, scope, parent or condition
// depends on, through variables and resources.
func namesOf(f *bicep.File) map[string]bool {
	found := map[string]bool{}
	var follow func(text string)
	named := func(r bicep.Declaration) {
		for _, field := range []string{"name", "scope", "parent"} {
			follow(r.Value.At(field).Text)
		}
	}
	follow = func(text string) {
		for _, word := range identifier.FindAllString(text, -1) {
			if found[word] {
				continue
			}
			if _, is := f.Find("param", word); is {
				found[word] = true
			} else if v, is := f.Find("var", word); is {
				found[word] = true
				follow(v.Value.Text)
			} else if r, is := f.Find("resource", word); is {
				found[word] = true
				named(r)
			}
		}
	}
	for _, r := range f.All("resource") {
		follow(r.Condition)
		named(r)
	}
	return found
}

// Traces are sent by the environment's stable API, and nothing is deployed for them without TRACES.
func TestTracesUseTheEnvironmentsAPI(t *testing.T) {
	const file = "modules/environment.bicep"
	for name, sent := range map[string]bool{"": false, "appi-x": true} {
		require.Equal(t, sent, eval(t, file, "traces", map[string]any{"applicationInsightsName": name}))
	}
	for _, field := range []string{"appInsightsConfiguration", "openTelemetryConfiguration"} {
		require.Regexp(t, `^traces \? `, find(t, file, "resource", "environment").Value.At("properties", field).Text)
	}
	insights := find(t, "modules/monitoring.bicep", "resource", "applicationInsights")
	require.Equal(t, "( traces )", insights.Condition, "without traces it is empty, and one more endpoint")
}

// The compiler warns if it cannot prove that a length is not negative: substring with a length
// minus one.
func TestNoSubstringLengthCanBeNegative(t *testing.T) {
	for file := range templates(t) {
		require.NotRegexp(t, `substring\([^)]*length\(`, read(t, "infra/"+file), file)
	}
}
