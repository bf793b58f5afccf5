package producer

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

func set(t *testing.T, values map[string]string) {
	t.Helper()
	for k, v := range values {
		t.Setenv(k, v)
	}
}

func minimal(t *testing.T) {
	t.Helper()
	set(t, map[string]string{
		"MONGODB_URI": "mongodb://user:hunter2@db.example/?replicaSet=rs0", "MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events",
		"SERVICE_BUS_NAMESPACE": "contoso.servicebus.windows.net", "SERVICE_BUS_TOPIC": "changes",
		"BLOB_ACCOUNT_URL": "https://contoso.blob.core.windows.net",
	})
}

func TestTheMinimumConfigurationIsEnough(t *testing.T) {
	minimal(t)
	c, err := LoadConfig()
	require.NoError(t, err)
	require.Equal(t, "shop.events", c.Stream)
	require.Equal(t, "changes", c.entity())
	require.Equal(t, envelope.JSON, c.format())
	require.Equal(t, 2500*time.Millisecond, c.FenceAfter)
	require.Equal(t, []envelope.Operation{"insert", "update", "replace", "delete"}, c.Operations)
}

func TestAllProblemsAreListedAtOnceAndNoSecretIsPrinted(t *testing.T) {
	set(t, map[string]string{
		"MONGODB_URI":                   "hunter2",
		"SERVICE_BUS_CONNECTION_STRING": "hunter2",
		"BLOB_CONNECTION_STRING":        "hunter2",
		"BLOB_ACCOUNT_URL":              "https://contoso.blob.core.windows.net",
		"SERVICE_BUS_TOPIC":             "changes",
		"SERVICE_BUS_QUEUE":             "changes",
		"START_FROM":                    "timestamp",
		"OPERATIONS":                    "insert,upsert",
		"LEASE_DURATION":                "3s",
		"FENCE_AFTER":                   "7s",
		"HEARTBEAT_INTERVAL":            "soon",
		"PUBLISH_LANES":                 "0",
		"SESSION_KEY":                   "bucket:0",
	})
	_, err := LoadConfig()
	require.EqualError(t, err, `14 settings must be fixed:
  - MONGODB_DATABASE: is required and not set
  - MONGODB_COLLECTION: is required and not set
  - HEARTBEAT_INTERVAL: its value cannot be read as a duration (for example 500ms, 15s, 2m)
  - SESSION_KEY: its value cannot be read as aggregate, or bucket:N with N from 1 to 65536
  - MONGODB_URI: is not a MongoDB connection string (mongodb://… or mongodb+srv://…)
  - SERVICE_BUS_CONNECTION_STRING: is not a Service Bus connection string (Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…)
  - SERVICE_BUS_TOPIC, SERVICE_BUS_QUEUE: set exactly one of them
  - BLOB_ACCOUNT_URL: must not be set together with BLOB_CONNECTION_STRING: they name two different ways to sign in
  - START_AT: is required with START_FROM=timestamp: an RFC 3339 time (for example 2026-01-31T12:00:00Z)
  - OPERATIONS: "upsert" is not one of insert, update, replace, delete
  - LEASE_DURATION: must be a whole number of seconds from 15s to 60s, Azure's bounds (it is 3s)
  - TAKEOVER_AFTER: must exceed FENCE_AFTER (7s) by at least 500ms (it is 4s), or a standby would lead beside a leader that may still send
  - TAKEOVER_AFTER: must not exceed LEASE_DURATION (3s) (it is 4s)
  - PUBLISH_LANES: must be at least 1 (it is 0)`)
}

func TestAWrongSettingIsRefused(t *testing.T) {
	for name, values := range map[string]map[string]string{
		"the fence at the heartbeat":         {"HEARTBEAT_INTERVAL": "4s"},
		"takeover at the fence":              {"TAKEOVER_AFTER": "2.5s"},
		"takeover after the lease's end":     {"TAKEOVER_AFTER": "16s"},
		"a poll slower than the takeover":    {"STANDBY_POLL": "6s"},
		"a lease of no whole seconds":        {"LEASE_DURATION": "15500ms"},
		"a lease above Azure's bound":        {"LEASE_DURATION": "61s"},
		"an unknown takeover":                {"LEASE_TAKEOVER": "never"},
		"a start without its time":           {"START_FROM": "timestamp"},
		"a time without its start":           {"START_AT": "2026-01-01T00:00:00Z"},
		"a time for what waits":              {"START_FROM": "checkpoint", "START_AT": "2026-01-01T00:00:00Z"},
		"a batch larger than Standard takes": {"BATCH_MESSAGES": "5000"},
		"a heartbeat without a pause":        {"HEARTBEAT_INTERVAL": "2ns"},
		"a poll without a pause":             {"STANDBY_POLL": "2ns"},
		"a stall at once":                    {"STALL_AFTER": "3ns"},
		"a stall before now":                 {"STALL_AFTER": "-1s"},
		"a start before 1970":                {"START_FROM": "timestamp", "START_AT": "1969-12-31T23:59:59Z"},
		"a start that MongoDB cannot say":    {"START_FROM": "timestamp", "START_AT": "2107-01-01T00:00:00Z"},
		"a container that no storage has":    {"BLOB_CONTAINER": "Check_Points"},
		"a container of bodies without name": {"ON_OVERSIZE": "claimcheck", "CLAIM_CHECK_CONTAINER": "a"},
		"one container for both":             {"ON_OVERSIZE": "claimcheck", "CLAIM_CHECK_CONTAINER": "sluice"},
		"more in flight than memory":         {"MAX_IN_FLIGHT_EVENTS": "9223372036854775807"},
		"a namespace that is a URL":          {"SERVICE_BUS_NAMESPACE": "sb://contoso.servicebus.windows.net/"},
		"a storage account without TLS":      {"BLOB_ACCOUNT_URL": "http://contoso.blob.core.windows.net"},
		"no operations":                      {"OPERATIONS": ""},
		"a start from a snapshot":            {"START_FROM": "snapshot"},
		"a snapshot for lost history":        {"ON_HISTORY_LOST": "snapshot"},
		"a database with a dot":              {"MONGODB_DATABASE": "shop.events"},
		"a connection string as a database":  {"MONGODB_DATABASE": "mongodb://user:hunter2@db.example"},
		"a system collection":                {"MONGODB_COLLECTION": "system.views"},
		"a collection with a dollar":         {"MONGODB_COLLECTION": "$events"},
		"a collection that ends in a dot":    {"MONGODB_COLLECTION": "events."},
	} {
		t.Run(name, func(t *testing.T) {
			minimal(t)
			set(t, values)
			_, err := LoadConfig()
			require.ErrorContains(t, err, "1 setting must be fixed")
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// The driver watches the whole database where the collection has no name, and a stream without
// names began as ".".
func TestRequiredSettingsMustNotBeEmpty(t *testing.T) {
	for _, empty := range []string{"", " "} {
		minimal(t)
		set(t, map[string]string{"MONGODB_URI": empty, "MONGODB_DATABASE": empty, "MONGODB_COLLECTION": empty})
		_, err := LoadConfig()
		require.EqualError(t, err, `3 settings must be fixed:
  - MONGODB_URI: is required and empty
  - MONGODB_DATABASE: is required and empty
  - MONGODB_COLLECTION: is required and empty`)
	}
	minimal(t)
	set(t, map[string]string{"STREAMS": "orders", "ORDERS_MONGODB_COLLECTION": ""})
	_, err := LoadConfig()
	require.EqualError(t, err, "1 setting must be fixed:\n  - ORDERS_MONGODB_COLLECTION: is required and empty")
	var none Config
	require.ErrorContains(t, none.Validate(), "MONGODB_COLLECTION: is required and not set", "a Config made in Go is checked, too")
}

func TestASnapshotThatWouldLoseOrRepeatChangesIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		values map[string]string
		want   string // empty: it is accepted
	}{
		"an event store":                  {map[string]string{"START_FROM": "snapshot", "OPERATIONS": "insert"}, ""},
		"documents that change":           {map[string]string{"START_FROM": "snapshot", "AGGREGATE_ID_PATH": "_id"}, ""},
		"documents that heal":             {map[string]string{"ON_HISTORY_LOST": "snapshot", "AGGREGATE_ID_PATH": "_id"}, ""},
		"an event store that heals":       {map[string]string{"ON_HISTORY_LOST": "snapshot", "OPERATIONS": "insert"}, ""},
		"documents of another aggregate":  {map[string]string{"START_FROM": "snapshot"}, "START_FROM=snapshot: no snapshot can be published: a document may be part of an aggregate"},
		"no inserts":                      {map[string]string{"START_FROM": "snapshot", "OPERATIONS": "update"}, "OPERATIONS has no insert"},
		"documents that PIPELINE changes": {map[string]string{"START_FROM": "snapshot", "OPERATIONS": "insert", "PIPELINE": `[{"$unset": "fullDocument.x"}]`}, "Use no other stages than $match"},
		"a heal without versions":         {map[string]string{"ON_HISTORY_LOST": "snapshot", "OPERATIONS": "insert", "VERSION_PATH": ""}, "without VERSION_PATH"},
		"chunks without documents":        {map[string]string{"SNAPSHOT_CHUNK": "0"}, "SNAPSHOT_CHUNK"},
	} {
		t.Run(name, func(t *testing.T) {
			minimal(t)
			set(t, test.values)
			_, err := LoadConfig()
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "1 setting must be fixed")
			require.ErrorContains(t, err, test.want)
		})
	}
}

// G3, G4: settings under which a checkpoint in MongoDB would lose the backlog of another store, be
// a change of itself, or have a lease that ends by a clock.
func TestACheckpointInMongoDBThatWouldDoHarmIsRefused(t *testing.T) {
	minimal(t)
	set(t, map[string]string{
		"BLOB_ACCOUNT_URL": "", "CHECKPOINT_STORE": "mongodb", "CHECKPOINT_MONGODB_URI": "mongodb://db.example/?replicaSet=rs0",
		"CHECKPOINT_MONGODB_DATABASE": "sluice", "START_FROM": "latest",
	})
	_, err := LoadConfig()
	require.NoError(t, err, "a storage account is not needed")
	for _, one := range []struct {
		values map[string]string
		want   string
	}{
		{map[string]string{"CHECKPOINT_MONGODB_URI": ""}, "CHECKPOINT_MONGODB_URI"},
		{map[string]string{"CHECKPOINT_MONGODB_DATABASE": ""}, "CHECKPOINT_MONGODB_DATABASE"},
		{map[string]string{"CHECKPOINT_MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "sluice_checkpoints"}, "the checkpoint would be in the watched collection"},
		{map[string]string{"LEASE_TAKEOVER": "expiry"}, "its leases do not expire"},
		{map[string]string{"LEASE_DURATION": "30s"}, "its leases do not expire"},
	} {
		t.Run(one.want, func(t *testing.T) {
			set(t, one.values)
			_, err := LoadConfig()
			require.ErrorContains(t, err, one.want)
		})
	}
	require.NoError(t, os.Unsetenv("START_FROM")) // t.Setenv restores it
	_, err = LoadConfig()
	require.ErrorContains(t, err, "START_FROM: is required with CHECKPOINT_STORE=mongodb")
}
