package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
)

const bus = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=hunter2;UseDevelopmentEmulator=true;"

// environment sets exactly the given settings.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, name := range []string{
		"MONGODB_URI", "READ_MODEL_DATABASE", "SERVICE_BUS_NAMESPACE", "SERVICE_BUS_CONNECTION_STRING", "SERVICE_BUS_TOPIC",
		"SERVICE_BUS_SUBSCRIPTION", "SERVICE_BUS_QUEUE",
	} {
		if _, ok := set[name]; !ok {
			t.Setenv(name, "")
		}
	}
	for name, value := range set {
		t.Setenv(name, value)
	}
}

func TestLoadConfigReportsEveryProblemAndNoSecret(t *testing.T) {
	environment(t, map[string]string{
		"MONGODB_URI": "mysql://user:hunter2@localhost", "READ_MODEL_DATABASE": "read model",
		"SERVICE_BUS_CONNECTION_STRING": "hunter2", "SERVICE_BUS_TOPIC": "changes", "SERVICE_BUS_QUEUE": "q",
		"MAX_SESSIONS": "0", "RECEIVE_BATCH": "hunter2", "SESSION_IDLE": "1m", "SESSION_MAX_HOLD": "30s",
		"ACCEPT_TIMEOUT": "1ms", "SHUTDOWN_TIMEOUT": "5s", "SETTLE_TIMEOUT": "5s", "LOG_LEVEL": "loud",
	})
	_, err := projector.LoadConfig()
	require.EqualError(t, err, `10 settings must be fixed:
  - RECEIVE_BATCH: its value cannot be read as a whole number
  - LOG_LEVEL: its value cannot be read as a log level (debug, info, warn or error)
  - SERVICE_BUS_CONNECTION_STRING: is not a Service Bus connection string (Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…)
  - SERVICE_BUS_QUEUE: must not be set together with SERVICE_BUS_TOPIC and SERVICE_BUS_SUBSCRIPTION
  - MONGODB_URI: is not a MongoDB connection string (mongodb://… or mongodb+srv://…)
  - READ_MODEL_DATABASE: is not a name for a database: at most 63 bytes, and none of / \ . " $ and space
  - MAX_SESSIONS: must be from 1 to 5000 (it is 0)
  - ACCEPT_TIMEOUT: must be at least 1s (it is 1ms)
  - SESSION_IDLE: must not exceed SESSION_MAX_HOLD
  - SETTLE_TIMEOUT: must be shorter than SHUTDOWN_TIMEOUT, which it has to fit in`)
}

func TestLoadConfigRefusesEmptyLikeMissingSettings(t *testing.T) {
	environment(t, nil)
	_, err := projector.LoadConfig()
	require.EqualError(t, err, `4 settings must be fixed:
  - MONGODB_URI: is required and empty
  - READ_MODEL_DATABASE: is required and empty
  - SERVICE_BUS_NAMESPACE: is required (or, for an emulator, SERVICE_BUS_CONNECTION_STRING)
  - SERVICE_BUS_TOPIC: is required, with SERVICE_BUS_SUBSCRIPTION (or SERVICE_BUS_QUEUE instead of both)`)
}

func TestMirrorSettingsAreChecked(t *testing.T) {
	environment(t, map[string]string{
		"MONGODB_URI": "mongodb://localhost", "READ_MODEL_DATABASE": "readmodel", "PROJECTION": "mirror",
		"SERVICE_BUS_CONNECTION_STRING": bus, "SERVICE_BUS_QUEUE": "q", "MIRROR_FIELDS": "name,address.city", "MIRROR_KEY": "a.",
	})
	_, err := projector.LoadConfig()
	require.EqualError(t, err, "2 settings must be fixed:\n  - MIRROR_KEY: the key \"a.\" is not a path of fields\n"+
		"  - MIRROR_FIELDS: the field \"address.city\" is not the name of a top-level field")
}
