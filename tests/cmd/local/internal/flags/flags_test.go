package flags

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

func noEnv(string) string { return "" }

func TestDefaults(t *testing.T) {
	t.Parallel()
	o, err := Parse(nil, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, 2, o.Producers)
	require.Equal(t, 1, o.Projectors)
	require.Equal(t, Timeline, o.Projection)
	require.Equal(t, envelope.SessionKey{}, o.SessionKey)
	require.InDelta(t, 100, o.Rate, 0)
	require.Equal(t, 2500, o.Generate)
	require.True(t, o.Ends(), "a newcomer's run comes to its end and reports")
}

func TestInputIsLoadedAtFullSpeedAndStaysUpWithoutOnce(t *testing.T) {
	t.Parallel()
	file := write(t, `{"aggregateId":"a","version":1,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`)
	o, err := Parse([]string{"--input", file, "--seed=7", "--latency", "2ms", "--chaos", "kill-leader@1s"}, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	require.Len(t, o.Input, 1)
	require.Zero(t, o.Rate)
	require.EqualValues(t, 7, o.Seed)
	require.Equal(t, 2*time.Millisecond, o.Latency)
	require.Len(t, o.Chaos, 1)
	require.False(t, o.Ends())
}

func TestSessionKeyPacksAndCredits(t *testing.T) {
	t.Parallel()
	o, err := Parse([]string{"--session-key=bucket:8", "--pack=auto", "--credits=1000"}, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, envelope.Buckets(8), o.SessionKey)
	require.Equal(t, "auto", o.Pack)
	require.Equal(t, 1000, o.Credits)
	o, err = Parse([]string{"--session-key=aggregate"}, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	require.Zero(t, o.SessionKey)
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	_, err := Parse([]string{"--help"}, noEnv, &help)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, help.String(), "-servicebus-config")
	require.Contains(t, help.String(), "lose-ack ")
	require.NotContains(t, help.String(), "(default -1)")
}

func TestWrongUsageReportsWhatToDo(t *testing.T) {
	t.Parallel()
	broken := write(t, "{}\n")
	good := write(t, `{"aggregateId":"a","version":1,"type":"T","occurredAt":"2026-01-01T00:00:00Z"}`)
	sessionless := write(t, `{"UserConfig":{"Namespaces":[{"Name":"n","Queues":[{"Name":"q","Properties":{"RequiresSession":false}}],"Topics":[]}],"Logging":{"Type":"File"}}}`)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":          {[]string{"--speed=9"}, "--help lists the flags"},
		"no value":              {[]string{"--input"}, "flag needs an argument"},
		"not a number":          {[]string{"--producers=many"}, "invalid value"},
		"left over":             {[]string{"events.ndjson"}, `"events.ndjson" is no flag`},
		"services elsewhere":    {[]string{"--services=/nowhere"}, "--services: there is no program producer in /nowhere: make build makes both"},
		"harm after the load":   {[]string{"--events=100", "--rate=100", "--chaos=kill-leader@2s"}, "--chaos kill-leader@2s: 100 events at 100 a second are loaded within 1s"},
		"missing file":          {[]string{"--input=/nowhere/events.ndjson"}, "no such file"},
		"broken line":           {[]string{"--input", broken}, broken + `:1: "aggregateId" is missing or empty`},
		"broken expectation":    {[]string{"--input", good, "--expect", good}, `read expectation of aggregate "aggregateId"`},
		"expectation alone":     {[]string{"--expect", good}, "give that with --input"},
		"broken entities":       {[]string{"--servicebus-config", good}, "--servicebus-config: " + good + ": parse service bus config"},
		"no sessions":           {[]string{"--servicebus-config", sessionless}, "set RequiresSession on one"},
		"chaos syntax":          {[]string{"--chaos=kill-leader"}, "NAME@TIME"},
		"no producers":          {[]string{"--producers=0"}, "use --stack-only"},
		"unknown projection":    {[]string{"--projection=invoices"}, "timeline, mirror and orders"},
		"unknown session key":   {[]string{"--session-key=customer"}, "it is aggregate, or bucket:N with N from 1 to 65536"},
		"no buckets":            {[]string{"--session-key=bucket:0"}, "it is aggregate, or bucket:N with N from 1 to 65536"},
		"stack-only and key":    {[]string{"--stack-only", "--session-key=bucket:8"}, "--session-key is about the services"},
		"unknown packs":         {[]string{"--pack=on"}, "must be off or auto"},
		"negative credits":      {[]string{"--credits=-1"}, "must be 0 (unlimited) or more"},
		"write-load alone":      {[]string{"--write-load"}, "give both, or neither"},
		"follow, no settings":   {[]string{"--follow"}, "--follow needs the environment variable MONGODB_COLLECTION"},
		"mirror and expect":     {[]string{"--projection=mirror", "--input", good, "--expect", good}, "compared with the source"},
		"negative rate":         {[]string{"--rate=-5"}, "must be 0"},
		"events and input":      {[]string{"--events=5", "--input", good}, "give one of them"},
		"endless once":          {[]string{"--events=0", "--once"}, "has none"},
		"external, no settings": {[]string{"--external"}, "MONGODB_URI"},
		"external and chaos":    {[]string{"--external", "--chaos=drop-servicebus@4s"}, "needs the embedded servers"},
		"external and lose-ack": {[]string{"--external", "--chaos=lose-ack@4s"}, "needs the embedded servers"},
		"external and azurite":  {[]string{"--external", "--azurite"}, "--azurite is about the embedded servers"},
		"azurite and blob-503":  {[]string{"--azurite", "--chaos=blob-503@1s"}, "leave --azurite out"},
		"stack-only and input":  {[]string{"--stack-only", "--input", good}, "--stack-only starts none"},
		"unknown server":        {[]string{"--ports=redis=6379"}, "there is no server of that name"},
		"no port":               {[]string{"--ports=mongodb"}, "a port is a number from 1 to 65535"},
		"port out of range":     {[]string{"--ports=blob=70000"}, "a port is a number from 1 to 65535"},
		"one port for two":      {[]string{"--ports=blob=7000,admin=7000"}, "blob has that port already"},
		"snapshot and input":    {[]string{"--snapshot", "--input", good}, "fills a collection of its own"},
		"external and ports":    {[]string{"--external", "--ports=standard"}, "--ports is about the embedded servers"},
		"snapshot of a run":     {[]string{"--mongo-snapshot=x"}, "keeps the data of --stack-only"},
		"snapshot nowhere":      {[]string{"--stack-only", "--mongo-snapshot=/nowhere/at/all"}, "no directory /nowhere/at"},
		"report nowhere":        {[]string{"--report=/nowhere/at/all.json"}, "no directory /nowhere/at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(test.args, noEnv, &bytes.Buffer{})
			var usage *UsageError
			require.ErrorAs(t, err, &usage)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]emulator.Ports{
		"":                              {},
		"standard":                      {Mongo: 27017, ServiceBus: 5672, Administration: 5300, TLS: []int{5671}, Blob: 10000},
		"servicebus=5673, mongodb=4000": {Mongo: 4000, ServiceBus: 5673},
		"admin=1,blob=65535":            {Administration: 1, Blob: 65535},
		"tls=5671,443,blob=10000":       {TLS: []int{5671, 443}, Blob: 10000},
	} {
		o, err := Parse([]string{"--stack-only", "--ports", text}, noEnv, &bytes.Buffer{})
		require.NoError(t, err)
		require.Equal(t, want, o.Ports)
	}
}

func TestOnlyTheServicesNeedSessions(t *testing.T) {
	t.Parallel()
	sessionless := write(t, `{"UserConfig":{"Namespaces":[{"Name":"n","Queues":[{"Name":"q","Properties":{}}],"Topics":[]}],"Logging":{"Type":"File"}}}`)
	o, err := Parse([]string{"--stack-only", "--servicebus-config", sessionless}, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	require.Len(t, o.Entities.Queues, 1)
}

func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Parse([]string{"--external", "--chaos=blob-503@1s", "--producers=0"}, noEnv, &bytes.Buffer{})
	var usage *UsageError
	require.ErrorAs(t, err, &usage)
	require.Len(t, usage.Problems, 5, "%v", usage.Problems) // no producers, the chaos, three settings
}

// poison is done to a read model that this command fills and can judge.
func TestPoisonIsRefusedForAnExternalReadModel(t *testing.T) {
	t.Parallel()
	env := map[string]string{"MONGODB_URI": "mongodb://db", "MONGODB_DATABASE": "app", "MONGODB_COLLECTION": "orders"}
	for _, args := range [][]string{{"--projection=mirror"}, {"--projection=orders"}, {"--follow"}, {"--follow", "--write-load"}} {
		_, err := Parse(append(args, "--chaos=poison@1s"), func(name string) string { return env[name] }, &bytes.Buffer{})
		require.ErrorContains(t, err, "--chaos poison is done to the read model timeline", "%v", args)
	}
	o, err := Parse([]string{"--chaos=poison@1s"}, noEnv, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, AutoConsole, o.Console)
	require.Empty(t, o.Refuses(chaos.Poison))
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFollow(t *testing.T) {
	t.Parallel()
	env := map[string]string{"MONGODB_URI": "mongodb://db", "MONGODB_DATABASE": "app", "MONGODB_COLLECTION": "orders", "VERSION_PATH": "v"}
	parse := func(args ...string) (Options, error) {
		return Parse(append(args, "--follow"), func(name string) string { return env[name] }, &bytes.Buffer{})
	}
	o, err := parse()
	require.NoError(t, err)
	require.True(t, o.Following())
	require.False(t, o.Ends())
	require.Equal(t, Mirror, o.Projection)
	require.Equal(t, Follow{
		URI: "mongodb://db", Database: "app", Collection: "orders", Settings: []string{"VERSION_PATH=v", "AGGREGATE_ID_PATH=_id"},
	}, o.Follow)

	o, err = parse("--write-load", "--events=10")
	require.NoError(t, err)
	require.False(t, o.Following())
	require.True(t, o.Ends())
	require.Equal(t, Timeline, o.Projection)

	for flag, want := range map[string]string{
		"--external": "each say which servers there are", "--stack-only": "each say which servers there are",
		"--events=5": "--events is about events that are inserted", "--once": "add --write-load", "--projection=orders": "builds the mirror",
	} {
		_, err := parse(flag)
		require.ErrorContains(t, err, want, flag)
	}
}
