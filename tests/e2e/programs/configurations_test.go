package programs

const nowhere = "mongodb://user:hunter2@127.0.0.1:1/?replicaSet=rs0"

// configurations returns wrong configurations, and a few right ones that look wrong. "BUS" in a
// value stands for Service Bus's address.
func configurations() []tried {
	with := func(pairs ...string) map[string]string {
		set := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			set[pairs[i]] = pairs[i+1]
		}
		return set
	}
	const key = "Endpoint=sb://BUS;SharedAccessKeyName=nobody;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"
	p := func(name, says string, pairs ...string) tried {
		return tried{name: name, program: "producer", set: with(pairs...), code: 2, says: says, never: "hunter2"}
	}
	r := func(name, says string, pairs ...string) tried {
		return tried{name: name, program: "projector", set: with(pairs...), code: 2, says: says, never: "hunter2"}
	}
	lint := func(t tried) tried { t.args, t.code = []string{"config", "--lint"}, 1; return t }
	command := func(t tried, code int, args ...string) tried { t.args, t.code = args, code; return t }
	speaks := func(t tried) tried { t.code = runs; return t }
	return []tried{
		p("no MongoDB at all", "MONGODB_URI: is required and not set", "MONGODB_URI", "-"),
		p("an empty connection string", "MONGODB_URI: is required and empty", "MONGODB_URI", ""),
		p("a connection string of something else", "MONGODB_URI: is not a MongoDB connection string", "MONGODB_URI", "mysql://u:hunter2@db"),
		p("an empty database", "MONGODB_DATABASE: is required and empty", "MONGODB_DATABASE", ""),
		p("an empty collection", "MONGODB_COLLECTION: is required and empty", "MONGODB_COLLECTION", ""),
		p("blanks for a collection", "MONGODB_COLLECTION: is required and empty", "MONGODB_COLLECTION", "  "),
		p("database and collection in one", "MONGODB_DATABASE: is not a name for a database", "MONGODB_DATABASE", "shop.events"),
		p("a connection string for a database", "MONGODB_DATABASE: is not a name", "MONGODB_DATABASE", "mongodb://u:hunter2@db"),
		p("a collection of MongoDB's own", "MONGODB_COLLECTION: what begins with system.", "MONGODB_COLLECTION", "system.profile"),
		p("a misspelt setting", "ON_OVERSIZED: is no setting; did you mean ON_OVERSIZE?", "ON_OVERSIZED", "claimcheck"),
		p("a setting in lower case", "log_level: is no setting; did you mean LOG_LEVEL?", "log_level", "debug"),
		p("a setting with a word left out", "AGGREGATE_PATH: is no setting; did you mean AGGREGATE_ID_PATH?", "AGGREGATE_PATH", "_id"),
		p("a stream's setting with a wrong name", "ORDER_SERVICE_BUS_TOPIC: is no setting; did you mean ORDERS_SERVICE_BUS_TOPIC?", "STREAMS", "orders", "ORDER_SERVICE_BUS_TOPIC", "orders"),
		p("a setting of an unknown stream", "ORDERS_TOPIC: has the prefix of one stream's settings", "STREAMS", "orders", "ORDERS_TOPIC", "orders"),
		p("a setting of a stream that STREAMS lacks", "REFUNDS_SERVICE_BUS_TOPIC: is the setting", "STREAMS", "orders", "REFUNDS_SERVICE_BUS_TOPIC", "x"),
		p("two streams that are one", "STREAMS: a and b are both the stream", "STREAMS", "a,b"),
		p("a stream's name in capitals", `STREAMS: "Orders" is not a valid stream name`, "STREAMS", "Orders"),
		p("no entity", "SERVICE_BUS_TOPIC, SERVICE_BUS_QUEUE: set exactly one", "SERVICE_BUS_TOPIC", "-"),
		p("a topic and a queue", "SERVICE_BUS_TOPIC, SERVICE_BUS_QUEUE: set exactly one", "SERVICE_BUS_QUEUE", "q"),
		p("two ways to sign in", "SERVICE_BUS_NAMESPACE: must not be set together", "SERVICE_BUS_NAMESPACE", "contoso.servicebus.windows.net"),
		p("a namespace that is a URL", "SERVICE_BUS_NAMESPACE: must be a fully qualified name", "SERVICE_BUS_NAMESPACE", "sb://contoso/", "SERVICE_BUS_CONNECTION_STRING", "-"),
		p("a broken connection string of Service Bus", "SERVICE_BUS_CONNECTION_STRING: is not a Service Bus", "SERVICE_BUS_CONNECTION_STRING", "hunter2"),
		p("an administration without a scheme", "SERVICE_BUS_ADMINISTRATION: must be the URL of an emulator's", "SERVICE_BUS_ADMINISTRATION", "127.0.0.1:5300"),
		p("a container with a capital", "BLOB_CONTAINER: must have", "BLOB_CONTAINER", "Sluice"),
		p("storage without TLS", "BLOB_ACCOUNT_URL: must be an https URL", "BLOB_ACCOUNT_URL", "http://contoso", "BLOB_CONNECTION_STRING", "-"),
		p("a time without a unit", "LEASE_DURATION: its value cannot be read as a duration", "LEASE_DURATION", "15"),
		p("a lease that Azure does not give", "LEASE_DURATION: must be a whole number", "LEASE_DURATION", "5s"),
		p("a takeover before the fence", "TAKEOVER_AFTER: must exceed FENCE_AFTER", "TAKEOVER_AFTER", "2s"),
		p("a start without its time", "START_AT: is required .*for example", "START_FROM", "timestamp"),
		p("a start in words", "START_AT: its value cannot be read as an RFC 3339 time", "START_FROM", "timestamp", "START_AT", "yesterday"),
		p("an unknown operation", `OPERATIONS: "upsert" is not one`, "OPERATIONS", "insert,upsert"),
		p("a pipeline that is no JSON", "PIPELINE:", "PIPELINE", "{"),
		p("a pipeline that counts", "PIPELINE:", "PIPELINE", `[{"$group":{"_id":null}}]`),
		p("no lanes", "PUBLISH_LANES: must be at least 1", "PUBLISH_LANES", "0"),
		p("an invalid session key", "SESSION_KEY: its value cannot be read", "SESSION_KEY", "buckets:8"),
		p("everything wrong at once", `[5-9] settings must be fixed`, "MONGODB_URI", "hunter2", "PUBLISH_LANES", "0", "LEASE_DURATION", "1s", "START_FROM", "timestamp", "ON_OVERSIZED", "x"),
		r("a projector without a read model", "READ_MODEL_DATABASE: is required and not set", "READ_MODEL_DATABASE", "-"),
		r("an empty read model", "READ_MODEL_DATABASE: is required and empty", "READ_MODEL_DATABASE", ""),
		r("a misspelt setting of the projector", "MAX_SESSION: is no setting; did you mean MAX_SESSIONS?", "MAX_SESSION", "8"),
		r("an unknown projection", "PROJECTION: is not one of", "PROJECTION", "timelines"),
		r("a subscription without a topic", "SERVICE_BUS_TOPIC: is required with", "SERVICE_BUS_TOPIC", "-"),
		r("no sessions", "MAX_SESSIONS: must be from 1", "MAX_SESSIONS", "0"),
		r("fields of the mirror that lead into documents", "- MIRROR_FIELDS: the field", "PROJECTION", "mirror", "MIRROR_FIELDS", "a.b"),
		r("a mirror of its own source", "MIRROR_COLLECTION", "PROJECTION", "mirror", "READ_MODEL_DATABASE", "shop", "SOURCE_DATABASE", "shop",
			"SOURCE_COLLECTION", "orders", "MIRROR_COLLECTION", "orders"),
		r("an invalid key of the mirror", "- MIRROR_KEY: the key", "PROJECTION", "mirror", "MIRROR_KEY", "a."),

		lint(p("the same, asked for", "ON_OVERSIZED: is no setting", "ON_OVERSIZED", "claimcheck")),
		lint(r("an unknown projection, with --lint", "PROJECTION: is not one of", "PROJECTION", "timelines")),
		command(p("another program's variable that looks misspelt", "all settings can be read", "ON_OVERSIZED", "x", "IGNORE_VARIABLES", "ON_OVERSIZED"), 0, "config", "--lint"),
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
