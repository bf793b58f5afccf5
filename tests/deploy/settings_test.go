package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/tests/internal/bicep"
	"github.com/sluice-cdc/sluice/tests/internal/environ"
)

type service struct {
	name   string
	config reflect.Type
	load   func() error
}

var services = []service{
	{"producer", reflect.TypeFor[producer.Config](), func() error { _, err := producer.LoadConfig(); return err }},
	{"projector", reflect.TypeFor[projector.Config](), func() error { _, err := projector.LoadConfig(); return err }},
}

// notOurs are variables of the containers that no Config reads.
var notOurs = map[string]string{
	"CHECKPOINT_KUBERNETES_NAMESPACE": "the checkpoint store Kubernetes",
	"AZURE_CLIENT_ID":                 "azidentity: which of the app's identities to use",
	"AZURE_TOKEN_CREDENTIALS":         "azidentity: no other way to sign in is tried",
	"GOMEMLIMIT":                      "the Go runtime",
	"OTEL_TRACES_SAMPLER":             "the OpenTelemetry SDK",
	"OTEL_TRACES_SAMPLER_ARG":         "the OpenTelemetry SDK",
}

// leftOut are settings with neither a default nor a value in Azure, each for a reason.
var leftOut = map[string]string{
	"SERVICE_BUS_CONNECTION_STRING": "a secret, for emulators; in Azure the identity signs in",
	"SERVICE_BUS_ADMINISTRATION":    "for emulators; in Azure the namespace is its own administration",
	"BLOB_CONNECTION_STRING":        "a secret, for emulators; in Azure the identity signs in",
	"STREAMS":                       "empty means one stream, which is what the template deploys",
	"STREAM_NAME":                   "empty means DATABASE.COLLECTION, which is right",
	"CORRELATION_ID_PATH":           "empty means no correlation id",
	"SOURCE_MONGODB_URI":            "a secret of the operators' job alone (app/job.bicep): the projector does without",
	"TRACE_PARENT_PATH":             "empty means that a trace begins in the producer",
	"PIPELINE":                      "empty means that every change is read",
	"CHECKPOINT_MONGODB_URI":        "a secret, for a checkpoint in MongoDB; in Azure it is in Blob storage",
	"CHECKPOINT_MONGODB_DATABASE":   "for a checkpoint in MongoDB; in Azure it is in Blob storage",
}

// accepts requires that the service loads its configuration from env alone.
func (s service) accepts(t *testing.T, env map[string]string) {
	t.Helper()
	_, err := environ.Load(env, func() (any, error) { return nil, s.load() })
	require.NoError(t, err)
}

type setting struct{ hasDefault, required bool }

func settingsOf(config reflect.Type) map[string]setting {
	found := map[string]setting{}
	for field := range config.Fields() {
		if field.Anonymous {
			maps.Copy(found, settingsOf(field.Type))
			continue
		}
		_, hasDefault := field.Tag.Lookup("default")
		found[field.Tag.Get("envconfig")] = setting{hasDefault, field.Tag.Get("required") == "true"}
	}
	return found
}

// appFile names the template of a service's app and jobs. Those of the projector are made for each
// version.
var appFile = map[string]string{"producer": "app/producer.bicep", "projector": "app/projection.bicep"}

// appOf returns the resource of a service's app.
func appOf(t *testing.T, service string) bicep.Declaration {
	t.Helper()
	return find(t, appFile[service], "resource", service)
}

// containerEnv returns the environment of the app's container in its template: the value, or
// secretRef.
func containerEnv(t *testing.T, service string) map[string]bicep.Value {
	t.Helper()
	app := appOf(t, service)
	containers := 0
	app.Value.Walk(func(path []string, v bicep.Value) {
		if strings.Join(path, ".") == "properties.template.containers.env" {
			containers++
			require.Equal(t, "settings", v.Text, "the container's environment")
		}
	})
	require.Equal(t, 1, containers)
	env := map[string]bicep.Value{}
	visit := func(_ []string, v bicep.Value) {
		name, ok := v.Field("name")
		if v.Kind != bicep.Object || !ok {
			return
		}
		require.Equal(t, bicep.String, name.Kind, "line %d: a setting needs a literal name", v.Line)
		require.NotContains(t, env, name.Text, "line %d: set twice", v.Line)
		value, isValue := v.Field("value")
		if ref, ok := v.Field("secretRef"); ok {
			require.False(t, isValue, "line %d: a value and a secretRef", v.Line)
			value = bicep.Value{Kind: bicep.String, Text: "secretRef:" + ref.Text}
		}
		env[name.Text] = value
	}
	file := "app/" + service + ".bicep"
	find(t, file, "var", "settings").Value.Walk(visit)
	if versions, found := template(t, file).Find("module", "versioned"); found { // each adds its projection and its subscription
		added := versions.Value.At("params", "settings")
		require.True(t, strings.HasPrefix(added.Text, "concat ( settings , ["), added.Text)
		added.Walk(visit)
	}
	require.NotEmpty(t, env)
	return env
}

// Every setting of the code is set by Bicep, or has a default, or is left out for a reason; and
// Bicep sets no setting that the code does not know.
func TestBicepSetsWhatTheServicesRead(t *testing.T) {
	for _, s := range services {
		t.Run(s.name, func(t *testing.T) {
			known, env := settingsOf(s.config), containerEnv(t, s.name)
			for name, setting := range known {
				_, set := env[name]
				_, excused := leftOut[name]
				require.True(t, set || setting.hasDefault && !setting.required || excused,
					"%s has no default and app/%s.bicep does not set it: set it there, or give the reason in leftOut", name, s.name)
				require.False(t, set && excused, "%s is set, but leftOut lists it", name)
			}
			for name := range env {
				_, isSetting := known[name]
				_, excused := notOurs[name]
				require.True(t, isSetting || excused, "app/%s.bicep sets %s, which the %s does not read", s.name, name, s.name)
			}
		})
	}
	for name := range leftOut {
		require.True(t, slices.ContainsFunc(services, func(s service) bool { _, ok := settingsOf(s.config)[name]; return ok }),
			"leftOut excuses %s, which is no setting", name)
	}
}

// The services accept the configuration that azd would set in the containers, with a topic and with
// a queue, and for a second version of the projection.
func TestTheServicesAcceptWhatBicepSets(t *testing.T) {
	topic := map[string]string{"SERVICE_BUS_TOPIC": "changes", "SERVICE_BUS_SUBSCRIPTION": "projector", "SERVICE_BUS_QUEUE": ""}
	queue := map[string]string{"SERVICE_BUS_TOPIC": "", "SERVICE_BUS_SUBSCRIPTION": "", "SERVICE_BUS_QUEUE": "changes"}
	second := maps.Clone(topic)
	maps.Copy(second, map[string]string{"version": "2", "PROJECTION": "orders"})
	for kind, entity := range map[string]map[string]string{"topic": topic, "queue": queue, "second version": second} {
		for _, s := range services {
			t.Run(s.name+" with a "+kind, func(t *testing.T) {
				azd := map[string]string{
					"SERVICE_BUS_NAMESPACE": "sb-x.servicebus.windows.net", "BLOB_ACCOUNT_URL": "https://stx.blob.core.windows.net",
					"BLOB_CONTAINER": "sluice", "CLAIM_CHECK_CONTAINER": "claim-checks",
					"MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "READ_MODEL_DATABASE": "readmodel",
				}
				maps.Copy(azd, entity)
				env := deployedEnv(t, s.name, azd)
				s.accepts(t, env)
				if s.name == "projector" && kind == "second version" {
					require.Equal(t, "orders:2 orders-v2", env["PROJECTION"]+" "+env["SERVICE_BUS_SUBSCRIPTION"])
				}
			})
		}
	}
}

// deployedEnv returns the settings that the container of a service gets from the variables of azd's
// environment; "version" among them is that of the projection.
func deployedEnv(t *testing.T, service string, azd map[string]string) map[string]string {
	t.Helper()
	given := map[string]any{"version": cmp.Or(azd["version"], "1")}
	for name, value := range parameterFile(t, "infra/app/"+service+".parameters.json") {
		given[name] = fill(value, azd)
	}
	env := map[string]string{}
	for name, value := range containerEnv(t, service) {
		if _, foreign := notOurs[name]; foreign || name == "START_AT" { // which is only set if it is not empty
			continue
		}
		if value.Text == "secretRef:mongodb-uri" {
			env[name] = "mongodb://u:p@db.example/"
			continue
		}
		env[name] = fmt.Sprint(evalValue(t, "app/"+service+".bicep", value, given))
	}
	return env
}

// TestMain hides the developer's own settings from the tests.
func TestMain(m *testing.M) {
	for _, s := range services {
		for name := range settingsOf(s.config) {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// The grace period covers the drain: the platform kills a process after it.
func TestGracePeriodCoversTheShutdown(t *testing.T) {
	for _, s := range services {
		grace := appOf(t, s.name).Value.At("properties", "template", "terminationGracePeriodSeconds")
		require.Equal(t, "45", grace.Text, s.name)
		require.Equal(t, "20s", containerEnv(t, s.name)["SHUTDOWN_TIMEOUT"].Text, "%s: must end well before the grace period", s.name)
	}
}

// Both services may have the same environment, which also contains azd's variables: a setting that
// only one service reads is not a misspelling for the other.
func TestSettingsOfTheOtherServiceAreNotMisspellings(t *testing.T) {
	var variables []string
	for _, s := range services {
		for name := range settingsOf(s.config) {
			variables = append(variables, name+"=1", "ORDERS_"+name+"=1")
		}
	}
	for name := range notOurs {
		variables = append(variables, name+"=1")
	}
	for _, name := range strings.FieldsFunc(read(t, "infra/main.parameters.json"), func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') }) {
		if strings.Contains(name, "_") {
			variables = append(variables, name+"=1")
		}
	}
	known := settings.Known{Spec: projector.Config{}, Foreign: []string{"MONGODB_DATABASE"}}
	require.Empty(t, known.Misspelt(variables))
	known = settings.Known{Spec: producer.Config{}, Foreign: []string{"SOURCE_MONGODB_URI"}}
	require.Empty(t, known.Misspelt(variables))
}
