package plan

// faults are the kinds of faults: which fields of a [Step] each of them requires, and how it is
// described, as a template that is executed with the step.
var faults = map[Kind]struct{ needs, words string }{
	Kill:          {"of", `kill {{.Of}}{{silently .}}, start it again after {{.For}}`},
	Stop:          {"of", `stop {{.Of}}, start it again after {{.For}}`},
	HoldAndKill:   {"of for", `hold what {{.Of}} sends to Service Bus, kill it after {{.KillAfter}}; what is held {{if .Late}}arrives{{else}}never arrives{{end}} after {{.For}}`},
	Hang:          {"of server way for", `hold {{.Way}} between {{.Of}} and {{.Server}} for {{.For}}`},
	Cut:           {"of server for", `cut {{.Of}} off from {{.Server}} for {{.For}}`},
	Isolate:       {"of for", `cut {{.Of}} off from everything without a word for {{.For}}`},
	KillProducers: {"", `kill every producer{{silently .}}, start them again after {{.For}}`},
	CutBus:        {"", `close every connection to Service Bus`},
	CutMongo:      {"", `close every connection to MongoDB`},
	KillCursors:   {"", `kill every cursor`},
	StepDown:      {"", `MongoDB elects a primary for {{.For}}`},
	UpgradeMongo:  {"version", `MongoDB writes resume tokens of version {{.Version}}`},
	StorageFails:  {"", `storage answers 503 for {{.For}}`},
	LoseAcks:      {"times", `lose the acknowledgements of {{.Times}} sends`},
	RefuseSends:   {"times", `Service Bus refuses {{.Times}} sends`},
	LoseReplies:   {"command times", `lose MongoDB's replies to {{.Times}} {{.Command}}`},
	SlowUpdates:   {"times", `MongoDB takes {{.For}} for each of {{.Times}} updates`},
	RefuseUpdates: {"times", `MongoDB refuses {{.Times}} updates of projectors with an unknown code`},
	LoseAnswers:   {"of times", `lose {{.Times}} answers of storage to {{.Of}}`},
	DelayRequests: {"of times for", `{{.Times}} requests of {{.Of}} to storage take {{.For}}`},
	BreakLease:    {"stream", `a stranger breaks the lease of {{.Stream}}{{if .Takes}}, and takes it for {{.For}}{{end}}`},
	KillInHand:    {"of", `kill {{.Of}}{{inHand .}}`},
	StopInHand:    {"of", `stop {{.Of}}{{inHand .}}`},
	CutBusInHand:  {"of", `close every connection to Service Bus{{inHand .}}`},
	CutInHand:     {"of", `cut {{.Of}} off from Service Bus{{inHand .}}`},

	OvertakeWrite: {"for", `the leader's next write of the checkpoint takes {{.For}}`},
	BusySends:     {"chance for", `Service Bus refuses {{percent .Chance}} of the sends for {{.For}}`},
	Drip:          {"aggregate total for", `{{.Total}} events of {{.Aggregate}} come one by one, and every delivery takes {{.Delay}} for {{.For}}`},
	LoseLocks:     {"chance for", `{{percent .Chance}} of the locks run out before their messages are settled, for {{.For}}`},
	SlowSettles:   {"delay for", `every settlement of a message takes {{.Delay}} for {{.For}}`},
	AnswerSends:   {"answer times", `Service Bus answers {{.Times}} sends with {{.Answer}}{{with .Condition}} {{.}}{{end}}`},
	Poison:        {"aggregate total", `{{event .}} is poison{{with .Manner}} ({{.}}){{end}}; it is {{if .Dropped}}dropped{{else}}fixed{{end}} in the end{{killed .KilledDrops}}`},
	Scale:         {"for", `scale the projectors to 6, and to 2 after {{.For}}`},

	SlowOpening: {"delay", `{{if .For.Duration}}for {{.For}}{{else}}from now on, for ever,{{end}} it takes a producer {{.Delay}} to open a connection to Service Bus`},

	RefuseMessage: {"aggregate total answer", `Service Bus never takes {{event .}}, and answers {{.Answer}}{{with .Condition}} {{.}}{{end}}`},

	ExpireImages:      {"", `the images of every change until now are gone`},
	ReplaceCollection: {"stream", `another collection gets the name of the one of {{.Stream}}`},
	Rewind:            {"stream for", `the operator takes the checkpoint of {{.Stream}} back by {{.For}}`},

	RefuseDocument:    {"aggregate total code", `MongoDB refuses with code {{.Code}} what {{event .}} writes, {{until .}}`},
	SmallTransactions: {"times code for", `MongoDB refuses with code {{.Code}} transactions that write more than {{.Times}} documents, for {{.For}}`},
	SlowEvents:        {"delay for", `the projection takes {{.Delay}} for each event, for {{.For}}`},

	HangProjection: {"aggregate total", `the projection does not return from {{event .}}, {{until .}}`},
	EndAMQPSessions: {"", `Service Bus ends the AMQP {{if .Times}}sessions of {{.Times}} links with {{.Condition}}
{{- else}}session of {{percent .Chance}} of the sends, deliveries and settlements, for {{.For}}{{end}}`},
	FailConcerns:     {"times code command", `MongoDB does {{.Times}} {{.Command}} of projectors, and answers beside them with the write concern error {{.Code}}`},
	RefuseSession:    {"aggregate answer condition for", `Service Bus answers sends to the session of {{.Aggregate}} with {{.Answer}} {{.Condition}}, for {{.For}}`},
	RefusePartition:  {"times answer condition for", `Service Bus answers sends to partition {{.Times}} of {{partitions}} with {{.Answer}} {{.Condition}}, for {{.For}}`},
	RefuseCollection: {"collection code for", `MongoDB refuses with code {{.Code}} every write to {{.Collection}}, for {{.For}}`},

	TakeOut: {"aggregate total answer", `Service Bus dead-letters {{event .}}: {{if eq .Answer "` + UsedUp + `"}}its deliveries are used up{{else}}its time is over{{end}}`},
	Deadly:  {"aggregate total for", `{{event .}} kills every projector that has it in hand, which starts again after {{.For}}`},
	LastDeadly: {
		"aggregate total for", `when all is at rest, {{event .}} kills every projector that has it in hand, which starts again after {{.For}}`,
	},

	Repair: {"aggregate total delay", `behind version {{.Before}} of {{.Total}} of {{.Aggregate}} its read model becomes wrong, and the operator repairs it
while the others come one by one; reads of MongoDB take {{.Delay}}{{killed .KilledDrops}}`},
	NewVersion: {"total delay", `the operator builds version 2 of the projection in ranges of {{.Total}} documents ({{.Before}} at once;
reads of MongoDB take {{.Delay}}){{killed .KilledDrops}}{{if .Early}}; its projector is started before{{end}},
and is killed {{.Times}} times; the readers are switched to it`},

	LoseHistory:     {"for", `kill every producer, and let MongoDB forget all changes {{.For}} later, when they start again`},
	CommandSnapshot: {"stream command", `the operator requests: snapshot {{.Command}}, of {{.Stream}}`},
	CommandPacks:    {"stream command", `the operator requests: packs {{.Command}}, of {{.Stream}}`},

	FailAnswers:   {"answer chance for program", `{{percent .Chance}} of the answers of programs are {{.Answer}}, for {{.For}}`},
	KillProgram:   {"of program", `kill the program of {{.Of}}, start it again{{if .Takes}} under another declaration{{end}} after {{.For}}`},
	PoisonProgram: {"aggregate total manner program", `programs fail at {{event .}} ({{.Manner}}), {{until .}}`},

	SlowCheckpoints: {"times for", `MongoDB takes {{.For}} for each of {{.Times}} writes of the checkpoint`},
	FailCheckpoints: {"times code", `MongoDB does {{.Times}} writes of the checkpoint and answers with write concern error {{.Code}}`},
}
