package programs

import (
	"fmt"
	"strings"
)

const nowhere = "mongodb://user:hunter2@127.0.0.1:1/?replicaSet=rs0"

// configurations returns wrong configurations, and a few right ones that look wrong. The rules of
// most settings are tested in the packages of the services alone. "BUS" in a value stands for
// Service Bus's address.
func configurations() []tried {
	with := func(pairs ...string) map[string]string {
		set := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			set[pairs[i]] = pairs[i+1]
		}
		return set
	}
	const key = "Endpoint=sb://BUS;SharedAccessKeyName=nobody;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"
	p := func(name, want string, pairs ...string) tried {
		return tried{name: name, program: "producer", set: with(pairs...), code: 2, want: want, never: "hunter2"}
	}
	r := func(name, want string, pairs ...string) tried {
		return tried{name: name, program: "projector", set: with(pairs...), code: 2, want: want, never: "hunter2"}
	}
	lint := func(t tried) tried { t.args, t.code = []string{"config", "--lint"}, 1; return t }
	command := func(t tried, code int, args ...string) tried { t.args, t.code = args, code; return t }
	speaks := func(t tried) tried { t.code = runs; return t }
	return []tried{
		p("a collection of MongoDB's own", "MONGODB_COLLECTION: what begins with system.", "MONGODB_COLLECTION", "system.profile"),
		p("a misspelt setting", "ON_OVERSIZED: is no setting; did you mean ON_OVERSIZE?", "ON_OVERSIZED", "claimcheck"),
		p("a setting of a stream that STREAMS lacks", "REFUNDS_SERVICE_BUS_TOPIC: is the setting", "STREAMS", "orders", "REFUNDS_SERVICE_BUS_TOPIC", "x"),
		p("a namespace that is a URL", "SERVICE_BUS_NAMESPACE: must be a fully qualified name", "SERVICE_BUS_NAMESPACE", "sb://contoso/", "SERVICE_BUS_CONNECTION_STRING", "-"),
		p("an administration without a scheme", "SERVICE_BUS_ADMINISTRATION: must be the URL of an emulator's", "SERVICE_BUS_ADMINISTRATION", "127.0.0.1:5300"),
		p("a start in words", "START_AT: its value cannot be read as an RFC 3339 time", "START_FROM", "timestamp", "START_AT", "yesterday"),
		p("a pipeline that counts", "PIPELINE:", "PIPELINE", `[{"$group":{"_id":null}}]`),
		p("everything wrong at once", `[5-9] settings must be fixed`, "MONGODB_URI", "hunter2", "PUBLISH_LANES", "0", "LEASE_DURATION", "1s", "START_FROM", "timestamp", "ON_OVERSIZED", "x"),
		r("a misspelt setting of the projector", "MAX_SESSION: is no setting; did you mean MAX_SESSIONS?", "MAX_SESSION", "8"),
		r("an unknown projection", "PROJECTION: is not one of", "PROJECTION", "timelines"),

		lint(p("the same, asked for", "ON_OVERSIZED: is no setting", "ON_OVERSIZED", "claimcheck")),
		lint(r("an unknown projection, with --lint", "PROJECTION: is not one of", "PROJECTION", "timelines")),
		command(p("another program's variable that seems misspelt", "all settings can be read", "ON_OVERSIZED", "x", "IGNORE_VARIABLES", "ON_OVERSIZED"), 0, "config", "--lint"),
		command(p("secrets in config", `MONGODB_URI +\(set; secret\)`, "MONGODB_URI", nowhere), 0, "config"),
		command(p("standard variables", "all settings can be read", "OTEL_SERVICE_NAME", "x", "AZURE_CLIENT_ID", "x", "GOMEMLIMIT", "400MiB", "KUBERNETES_PORT", "x"), 0, "config", "--lint"),
		command(p("an unknown command", "there is no command \"stauts\"; did you mean status"), 2, "stauts"),
		command(p("an unknown flag", "see `producer status --help`"), 2, "status", "--loud"),
		command(p("the help of a command", "usage: producer token rewind --to TIME"), 0, "token", "rewind", "--help"),
		command(p("the version", `^producer \S+, built by go`), 0, "version"),
		command(p("the status of a stream that never was", "no producer has led stream"), 1, "status"),
		command(p("a doctor that asks the administration", `ok +sessions +required by changes/projector`, "BLOB_CONTAINER", "missing"), 1, "doctor"),
		command(p("a doctor without the administration", "SERVICE_BUS_ADMINISTRATION, the URL of the emulator's administration, is not set", "SERVICE_BUS_ADMINISTRATION", "-", "BLOB_CONTAINER", "missing"), 1, "doctor"),
		command(p("a doctor whose administration is away", "sessions +unknown: the administration .*connection refused", "SERVICE_BUS_ADMINISTRATION", "http://127.0.0.1:1", "BLOB_CONTAINER", "missing"), 1, "doctor"),
		command(p("a doctor without MongoDB", `PROBLEM +mongodb +nothing listens there`, "MONGODB_URI", nowhere), 1, "doctor"),
		command(p("a doctor with a missing topic", `PROBLEM +service bus +the namespace has no entity "nowhere"`, "SERVICE_BUS_TOPIC", "nowhere"), 1, "doctor"),
		command(p("a doctor with a wrong key", `PROBLEM +service bus +the connection string is not accepted`, "SERVICE_BUS_CONNECTION_STRING", key), 1, "doctor"),
		command(r("a doctor of the projector without MongoDB", `PROBLEM +mongodb +nothing listens there`, "MONGODB_URI", nowhere), 1, "doctor"),
		command(r("replay of an unknown aggregate", "there is no aggregate NOPE"), 1, "parked", "replay", "NOPE"),
		command(r("drop of an unknown aggregate", "there is no aggregate NOPE"), 1, "parked", "drop", "--yes", "NOPE"),
		command(r("replay of what?", "needs either an aggregate or --all"), 2, "parked", "replay"),
		command(r("a drop that is not confirmed", "needs --yes: it gives up for good"), 2, "parked", "drop", "order-1"),
		command(r("a doctor of the projector with a missing subscription", `PROBLEM +service bus +.*nowhere`, "SERVICE_BUS_SUBSCRIPTION", "nowhere"), 1, "doctor"),
		command(r("an unknown command of the projector", `there is no command "verfy"; did you mean verify`), 2, "verfy"),
		command(r("verify without a source", "SOURCE_DATABASE: is required for this command"), 2, "verify"),

		speaks(p("a MongoDB that is away", `"dependency":"connection to MongoDB".*connection refused`, "MONGODB_URI", nowhere)),
		speaks(p("an idle producer with a missing topic", `"dependency":"connection to Service Bus".*nowhere`, "SERVICE_BUS_TOPIC", "nowhere")),
		speaks(p("an idle producer with a wrong key", `"dependency":"connection to Service Bus"`, "SERVICE_BUS_CONNECTION_STRING", key)),
		speaks(p("storage that is away", `"dependency":"Blob storage"`, "BLOB_CONNECTION_STRING", "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:1/devstoreaccount1")),
		speaks(r("a projector whose MongoDB is away", `"dependency":"connection to MongoDB".*connection refused`, "MONGODB_URI", nowhere)),
		speaks(r("a projector with a missing subscription", `"dependency":"connection to Service Bus"`, "SERVICE_BUS_SUBSCRIPTION", "nowhere")),
		speaks(r("a projector with a wrong key", `"dependency":"connection to Service Bus"`, "SERVICE_BUS_CONNECTION_STRING", key)),
	}
}

func line(aggregate string, version int, data string) string {
	return fmt.Sprintf(`{"aggregateId":%s,"version":%d,"type":"T","occurredAt":"2026-01-01T00:00:00Z","data":%s}`+"\n", aggregate, version, data)
}

// inputs returns files of events for make run: invalid ones that are refused with file and line,
// and unusual ones that are accepted. What else is invalid is tested in tests/internal/workload.
func inputs() []tried {
	refused := func(name, input, want string) tried {
		return tried{name: "input: " + name, program: "local", input: input, code: 2, want: want}
	}
	played := func(name, input string, args ...string) tried {
		return tried{name: "input: " + name, program: "local", input: input, args: args, code: 0, want: "RIGHT"}
	}
	ok := line(`"a"`, 1, "{}")
	extended := line(`"keys that look like Extended JSON"`, 1, `{"$numberLong":"1","$oid":"x","$date":"no"}`)
	nested := func(depth int) string { return strings.Repeat(`{"n":`, depth) + "1" + strings.Repeat("}", depth) }
	return []tried{
		refused("blanks and a byte order mark", "\xef\xbb\xbf \n", "it holds no event"),
		refused("version negative", line(`"a"`, -1, "{}"), `"version" is missing or below 1`),
		refused("a second line that is broken", ok+"{\n", ":2: is not JSON"),
		{name: "input: a directory", program: "local", args: []string{"--input", "/tmp"}, code: 2, want: "is a directory"},
		{name: "input: no flag before the file", program: "local", args: []string{"events.ndjson"}, code: 2, want: `"events.ndjson" is no flag`},

		played("odd ones", "\xef\xbb\xbf"+strings.Join([]string{
			ok, strings.ReplaceAll(line(`"Windows line ends"`, 1, "{}")+line(`"Windows line ends"`, 2, "{}"), "\n", "\r\n"),
			"\n", line(`"a"`, 2, "{}"), "\n\n", line(`"a"`, 3, "{}"),
			line(`"data null"`, 1, "null"),
			line(`"data of every type"`, 1, `{"n":null,"b":true,"i":1,"f":1.5,"big":9007199254740993,"s":"x","l":[1,[2,{}]],"d":{}}`),
			line(`"keys with dots and dollars"`, 1, `{"a.b":1,"$set":2,"":3}`),
			line(`"--all"`, 1, "{}"), line(`"it's \"x\"\n\u001b[31m"`, 1, "{}"), line(`"訂單-١٧-😀"`, 1, "{}"),
			line(`"`+strings.Repeat("x", 5000)+`"`, 1, "{}"),
			line(`"a large event"`, 1, `{"s":"`+strings.Repeat("x", 400<<10)+`"}`),
			extended, line(`"nested"`, 1, nested(80)), line(`"nested"`, 2, nested(179)),
			strings.TrimSpace(line(`"no newline at the end"`, 1, "{}")),
		}, "")),
		played("a mirror of keys that look like Extended JSON", extended, "--projection=mirror"),
		refused("documents nested 300 deep", line(`"a"`, 1, nested(300)), ":1: is nested deeper than the 180 levels that MongoDB stores"),
	}
}
