package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/settings"
)

type bus struct {
	Topic string `envconfig:"SERVICE_BUS_TOPIC"`
}

type stream struct {
	bus
	URI      string `envconfig:"MONGODB_URI"`
	Oversize string `envconfig:"ON_OVERSIZE"`
	Path     string `envconfig:"AGGREGATE_ID_PATH"`
	Sessions int    `envconfig:"MAX_SESSIONS"`
	Pipeline string `envconfig:"PIPELINE"`
	Level    string `envconfig:"LOG_LEVEL"`
	Nothing  string `ignored:"true"`
}

func misspelt(known settings.Known, names ...string) []string {
	known.Spec = &stream{}
	var environ, found []string
	for _, name := range names {
		environ = append(environ, name+"=hunter2")
	}
	for _, problem := range known.Misspelt(environ) {
		found = append(found, problem.Error())
	}
	return found
}

func TestNamesAreThoseOfTheTags(t *testing.T) {
	require.Equal(t, []string{"SERVICE_BUS_TOPIC", "MONGODB_URI", "ON_OVERSIZE", "AGGREGATE_ID_PATH", "MAX_SESSIONS", "PIPELINE", "LOG_LEVEL"}, settings.Names(&stream{}))
}

func TestMisspeltSettingsAreFoundWithTheNameThatWasMeant(t *testing.T) {
	const other = " (if it belongs to another program, name it in IGNORE_VARIABLES)"
	for name, meant := range map[string]string{
		"ON_OVERSIZED": "ON_OVERSIZE", "MAX_SESSION": "MAX_SESSIONS", "MAX_SESISONS": "MAX_SESSIONS", "MONGO_URI": "MONGODB_URI",
		"MONGODB_URL": "MONGODB_URI", "SERVICEBUS_TOPIC": "SERVICE_BUS_TOPIC", "AGGREGATE_PATH": "AGGREGATE_ID_PATH",
		"AGGREGATE_ID": "AGGREGATE_ID_PATH", "on_oversize": "ON_OVERSIZE", "MAX-SESSIONS": "MAX_SESSIONS", "PIPELINES": "PIPELINE",
	} {
		require.Equal(t, []string{name + ": is no setting; did you mean " + meant + "?" + other}, misspelt(settings.Known{}, name))
	}
}

func TestVariablesOfOtherProgramsAreLeftAlone(t *testing.T) {
	require.Empty(t, misspelt(settings.Known{},
		"PATH", "HOME", "HOSTNAME", "TERM", "LANG", "PWD", "SHLVL", "_", "HTTP_PROXY", "NO_PROXY", "GOMEMLIMIT", "GODEBUG",
		"OTEL_SERVICE_NAME", "OTEL_LOG_LEVEL", "AZURE_CLIENT_ID", "KUBERNETES_SERVICE_HOST", "CONTAINER_APP_REPLICA_NAME", "IDENTITY_ENDPOINT",
		"MONGODB_SERVICE_HOST", "MONGODB_PORT_27017_TCP_ADDR", "MONGODB_DATABASE", "REDIS_URI", "POSTGRES_URL", "CI_PIPELINE_ID", "LOG_FORMAT",
	))
	require.Empty(t, misspelt(settings.Known{Foreign: []string{"MAX_SESSION"}}, "MAX_SESSION"))
	require.Empty(t, misspelt(settings.Known{Prefixes: []string{"ORDERS_"}},
		"ORDERS_SERVICE_HOST", "ORDERS_SERVICE_PORT", "ORDERS_SERVICE_PORT_HTTP", "ORDERS_PORT", "ORDERS_PORT_80_TCP", "ORDERS_PORT_80_TCP_ADDR", "ORDERS_NAME",
	))
}

// A stream whose topic has another name in the environment would publish to the topic of all.
func TestSettingsOfStreamsThatNoStreamReadsAreFound(t *testing.T) {
	known := settings.Known{Prefixes: []string{"ORDERS_", "WEB_CARTS_"}, OfProcess: []string{"LOG_LEVEL"}}
	require.Empty(t, misspelt(known, "ORDERS_SERVICE_BUS_TOPIC", "WEB_CARTS_PIPELINE", "SERVICE_BUS_TOPIC", "APP_LOG_LEVEL", "ORDERS_LOG_LEVEL"))
	for name, want := range map[string]string{
		"ORDER_SERVICE_BUS_TOPIC": "did you mean ORDERS_SERVICE_BUS_TOPIC?",
		"CARTS_SERVICE_BUS_TOPIC": "did you mean WEB_CARTS_SERVICE_BUS_TOPIC?",
		"REFUNDS_MONGODB_URI":     "is the setting MONGODB_URI of a stream that STREAMS does not name; what a stream's settings begin with is ORDERS_, WEB_CARTS_",
		"XX_SERVICE_BUS_TOPIC":    "is the setting SERVICE_BUS_TOPIC of a stream that STREAMS does not name",
		"ORDERS_TOPIC":            "there is no setting TOPIC; did you mean ORDERS_SERVICE_BUS_TOPIC?",
		"ORDERS_COLOUR":           "has the prefix of one stream's settings, but there is no setting COLOUR",
		"WEB_CARTS_MAX_SESSION":   "did you mean WEB_CARTS_MAX_SESSIONS?",
	} {
		found := misspelt(known, name)
		require.Len(t, found, 1, name)
		require.Contains(t, found[0], want)
		require.NotContains(t, found[0], "hunter2")
	}
}
