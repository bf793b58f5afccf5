// Package flags parses and checks the command line of the local stack.
//
// A command line that cannot work is refused before anything is started, with a sentence that gives
// the remedy.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

const (
	// A newcomer's run lasts about 25 seconds: long enough to watch, and to kill a leader in.
	generatedEvents = 2500
	generatedRate   = 100
)

// The projections whose read model this command can check.
const (
	Timeline = "timeline"
	Mirror   = "mirror"
	Orders   = "orders"
)

// The values of --console that are no address of the user's: the default, which is UsualConsole on
// a terminal and none elsewhere, and where the console is served by default; if that port is taken,
// another one is used.
const (
	AutoConsole  = "auto"
	UsualConsole = "127.0.0.1:8090"
)

// Options is a checked command line.
type Options struct {
	Producers       int
	Projectors      int
	Projection      string
	ProjectionURL   string              // of a program that is the projection; empty: the projection is one of those above
	CheckpointStore string              // the producers'
	SessionKey      envelope.SessionKey // the producers'
	Pack            string              // the producers': off or auto
	Credits         int                 // a second, of the embedded Service Bus; 0: unlimited
	Rate            float64             // events a second; 0: as fast as it goes
	Once            bool
	Chaos           chaos.Plan
	Latency         time.Duration
	Ports           emulator.Ports // of the servers; 0: a free one
	StackOnly       bool
	Azurite         bool
	External        bool
	Seed            uint64
	Report          string // a path; empty: none
	Quiet           bool
	Logs            string // a directory for the services' logs; empty: a temporary one, kept after a failure
	Console         string // the address of the console, or [AutoConsole]; empty: no console
	Keep            bool   // the console stays after the verdict, until a signal
	Services        string // the directory of the services' programs; empty: they are built

	// Input holds the events of --input; nil: generate Generate events.
	Input []workload.Event
	// Generate is how many events to generate; 0: until the run is stopped.
	Generate int
	// Expected is the read model of --expect; nil: fold the source collection.
	Expected *history.Model
	// Entities are those of --servicebus-config; nil: the default ones.
	Entities *servicebus.Config
	// Snapshot is the file that --stack-only keeps MongoDB's data in; empty: nowhere.
	Snapshot string
	// EnvFile is where --stack-only writes its settings, for a shell; empty: nowhere.
	EnvFile string
	// Endpoints are the settings of --external, by name.
	Endpoints map[string]string
	// Follow is the collection of --follow.
	Follow Follow
	// Build has Before events in the collection before the producers begin, and builds the read
	// model of them.
	Build bool
	// BeginWithSnapshot has Before events in the collection before the producers begin, and starts
	// the stream with a snapshot.
	BeginWithSnapshot bool
	Before            int
	// WriteLoad inserts events into the collection of --follow.
	WriteLoad bool
}

// UsageError is a command line that cannot work.
type UsageError struct{ Problems []string }

func (e *UsageError) Error() string { return strings.Join(e.Problems, "\n") }

// Parse reads and checks the arguments, and the files they name. Every problem found is in the
// error, a [*UsageError]; it is [flag.ErrHelp] when help was asked for, which is then written to
// help.
func Parse(args []string, getenv func(string) string, help io.Writer) (Options, error) {
	var o Options
	var input, expect, chaosText, portsText, serviceBusConfig string
	var follow bool
	fs := flag.NewFlagSet("local", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&o.Producers, "producers", 2, "producers to run; one leads, the others stand by")
	fs.IntVar(&o.Projectors, "projectors", 1, "projectors to run; all are active")
	fs.StringVar(&o.Projection, "projection", Timeline, "read model to build and check: timeline, mirror or orders")
	fs.StringVar(&o.ProjectionURL, "projection-url", "", "`URL` of a program that is the projection, such as http://127.0.0.1:8088; --projection is its name")
	fs.StringVar(&o.CheckpointStore, "checkpoint-store", "blob", "the `store` of the checkpoint: blob, mongodb, or one that the producer in --services has")
	fs.TextVar(&o.SessionKey, "session-key", envelope.SessionKey{}, "`key` of the sessions: aggregate (each has its own) or bucket:N (all aggregates share N)")
	fs.StringVar(&o.Pack, "pack", "off", "off or auto: auto sends events of a session that wait in one message, and confirms before that readers know packs")
	fs.IntVar(&o.Credits, "credits", 0, "credits a second that the embedded Service Bus has, of which the Standard tier has 1000; 0: unlimited")
	fs.StringVar(&input, "input", "", "`file` of events, one JSON object {aggregateId, version, type, occurredAt, data} a line;\nwithout it, generated orders")
	fs.IntVar(&o.Generate, "events", generatedEvents, "events to generate without --input; 0: until stopped")
	fs.Float64Var(&o.Rate, "rate", -1, "events a second; 0: as fast as it goes (default 0 with --input, 100 without)")
	fs.Lookup("rate").DefValue = "0" // the text of the flag has the defaults
	fs.BoolVar(&o.Once, "once", false, "stop when everything inserted is visible, or nothing moves for 30 s\n(a generated run of a given number of events always does)")
	fs.StringVar(&expect, "expect", "", "`file` with the right timeline: JSON {aggregateId: {events, types, firstOccurredAt,\nlastOccurredAt, lastType}}; without it, a fold of the source collection")
	fs.StringVar(&chaosText, "chaos", "", "`list` of harm, each NAME@TIME or NAME@TIME:DURATION, such as kill-leader@2s,slow-ack@5s:3s;\ntimes count from the first insert; the names are below")
	fs.DurationVar(&o.Latency, "latency", 0, "simulated round trip on all three services, such as 2ms")
	fs.BoolVar(&o.StackOnly, "stack-only", false, "only the servers: prints their settings as export lines for a shell, and serves until a signal")
	fs.StringVar(&portsText, "ports", "", "`list` of ports to serve on, such as mongodb=27017,servicebus=5672,admin=5300,blob=10000,\nor \"standard\", which is those; a server that is not named takes a free port")
	fs.StringVar(&o.EnvFile, "env-file", "", "`file` for the settings of --stack-only, to be sourced by a shell (. FILE);\nit is there as soon as the servers are, and as long")
	fs.StringVar(&o.Snapshot, "mongo-snapshot", "", "`file` that keeps MongoDB's data and oplog over a restart of --stack-only:\nread at the start if it is there, written at the end")
	fs.BoolVar(&o.Azurite, "azurite", false, "Azurite (npm, tests/emulator/azurite) as the blob store")
	fs.StringVar(&serviceBusConfig, "servicebus-config", "", "`file` of entities, in the schema of the official emulator's Config.json")
	fs.BoolVar(&o.External, "external", false, "no servers: use "+emulator.EnvMongo+", "+emulator.EnvServiceBus+", "+emulator.EnvBlob)
	fs.BoolVar(&follow, "follow", false, "follow a collection of your own, which is only read: "+emulator.EnvMongo+", "+EnvDatabase+" and "+EnvCollection+"\nname it, everything else is embedded; until Ctrl-C, then the mirror is compared with it")
	fs.BoolVar(&o.WriteLoad, "write-load", false, "with --follow: insert events into that collection, which must be empty, as into one of our own")
	fs.BoolVar(&o.Build, "build", false, "begin with a full collection: the read model is built by projector build while events are inserted, and then verified")
	fs.BoolVar(&o.BeginWithSnapshot, "snapshot", false, "begin with a full collection: the stream begins with a snapshot of it, while events are inserted")
	fs.IntVar(&o.Before, "before", 0, "events that are there before the producers, with --build (default: 50000) or --snapshot (default: 20000)")
	fs.Uint64Var(&o.Seed, "seed", 0, "seed of the generated events (default: a new one, which is reported)")
	fs.StringVar(&o.Report, "report", "", "`file` to write the report to, as JSON")
	fs.StringVar(&o.Logs, "logs", "", "`directory` to keep the services' logs in (default: kept only after a failure)")
	fs.StringVar(&o.Services, "services", "", "`directory` with the services' programs, such as bin after make build (default: they are built for this run)")
	fs.StringVar(&o.Console, "console", AutoConsole, "`address` of the console, pages that show the run, on this machine alone, such as 127.0.0.1:8090;\nauto: that one if this is a terminal, else none; empty: none")
	fs.BoolVar(&o.Keep, "keep", false, "leave the console up after the verdict, until Ctrl-C")
	fs.BoolVar(&o.Quiet, "quiet", false, "no live view; the result only")
	fs.Usage = func() {}
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(help)
		_, _ = fmt.Fprintln(help, "local runs the whole pipeline on this machine, checks what comes out, and reports.\nFlags:")
		fs.PrintDefaults()
		_, _ = fmt.Fprint(help, "Harm for --chaos, with how long it lasts where it does not say:\n", chaos.Help())
		return o, err
	} else if err != nil {
		return o, &UsageError{[]string{err.Error() + ": --help lists the flags"}}
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })

	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if fs.NArg() > 0 {
		problem("%q is no flag: --help lists the flags, each is written --name=value or --name value", fs.Arg(0))
	}
	var err error
	if o.Chaos, err = chaos.Parse(chaosText); err != nil {
		problem("--chaos: %v", err)
	}
	if o.Ports, err = emulator.ParsePorts(portsText); err != nil {
		problem("--ports %v", err)
	}
	if !given["before"] {
		o.Before = map[bool]int{true: 20_000, false: 50_000}[o.BeginWithSnapshot]
	}
	problems = append(problems, o.contradictions(given)...)
	if !given["rate"] {
		o.Rate = 0
		if input == "" {
			o.Rate = generatedRate
		}
	}
	if !given["seed"] {
		o.Seed = rand.Uint64N(1_000_000)
	}
	if o.External {
		o.Endpoints = map[string]string{}
		for _, name := range []string{emulator.EnvMongo, emulator.EnvServiceBus, emulator.EnvBlob} {
			if o.Endpoints[name] = getenv(name); o.Endpoints[name] == "" {
				problem("--external needs the environment variable %s", name)
			}
		}
	}
	if follow {
		problems = append(problems, o.readFollow(given, getenv)...)
	} else if o.WriteLoad {
		problem("--write-load is about the collection of --follow: give both, or neither")
	}
	for _, a := range o.Chaos {
		if why := o.Refuses(a.Kind); why != "" {
			problem("--chaos %s", why)
		}
	}
	problems = append(problems, o.readFiles(input, expect, serviceBusConfig)...)
	problems = append(problems, o.tooLate()...)
	if len(problems) > 0 {
		return o, &UsageError{problems}
	}
	return o, nil
}

// contradictions lists the flags that do not go together, or have no meaning.
func (o Options) contradictions(given map[string]bool) []string {
	var problems []string
	problem := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	problem(o.Producers < 1 && !o.StackOnly, "--producers %d: at least one is needed; for none at all use --stack-only", o.Producers)
	problem(o.Projectors < 1 && !o.StackOnly, "--projectors %d: at least one is needed; for none at all use --stack-only", o.Projectors)
	problem(given["rate"] && o.Rate < 0, "--rate %v: must be 0 (as fast as it goes) or more events a second", o.Rate)
	problem(o.Pack != "off" && o.Pack != "auto", "--pack %s: must be off or auto", o.Pack)
	problem(o.Credits < 0, "--credits %d: must be 0 (unlimited) or more credits a second", o.Credits)
	problem(o.Generate < 0, "--events %d: must be 0 (until stopped) or more", o.Generate)
	problem(o.Latency < 0, "--latency %s: must not be negative", o.Latency)
	problem(given["events"] && given["input"], "--events counts generated events and --input brings its own: give one of them")
	problem(o.ProjectionURL == "" && !slices.Contains([]string{Timeline, Mirror, Orders}, o.Projection),
		"--projection %s: this command can check %s, %s and %s; a projection of your own is a program that runs, with --projection-url",
		o.Projection, Timeline, Mirror, Orders)
	for _, flag := range []string{"build", "snapshot", "follow", "expect", "stack-only"} {
		problem(o.ProjectionURL != "" && given[flag], "--projection-url and --%s: leave one of them out", flag)
	}
	problem(o.ProjectionURL != "" && !given["projection"], "--projection-url needs --projection, the name that the program declares")
	problem(given["expect"] && o.Projection != Timeline,
		"--expect describes the timeline read model: leave it out with --projection %s, which is compared with the source", o.Projection)
	problem(given["expect"] && !given["input"], "--expect describes the outcome of a file of events: give that with --input")
	problem(o.Once && o.Generate == 0 && !given["input"], "--once needs an end, and --events 0 has none: give a number of events, or --input")

	problem(o.Build && (given["input"] || given["follow"] || given["stack-only"]),
		"--build fills a collection of its own with generated events: leave out --input, --follow and --stack-only")
	problem(o.BeginWithSnapshot && (given["input"] || given["follow"] || given["stack-only"]),
		"--snapshot fills a collection of its own with generated events: leave out --input, --follow and --stack-only")
	problem(o.Build && o.BeginWithSnapshot, "--build and --snapshot are two ways to begin with a full collection: give one of them")
	problem(o.Before < 1, "--before %d: at least one event is needed", o.Before)
	problem(given["before"] && !o.Build && !o.BeginWithSnapshot, "--before counts the events of --build or --snapshot: give both, or neither")

	if o.External {
		for _, flag := range []string{"azurite", "credits", "latency", "ports", "servicebus-config", "stack-only"} {
			problem(given[flag], "--%s is about the embedded servers, and --external starts none: leave one of them out", flag)
		}
	}
	problem(given["env-file"] && !o.StackOnly, "--env-file has the settings of --stack-only, and other runs start the services themselves: leave it out")
	problem(given["mongo-snapshot"] && !o.StackOnly, "--mongo-snapshot keeps the data of --stack-only, and every other run begins with none: leave it out")
	if o.StackOnly {
		for _, flag := range []string{"input", "once", "expect", "chaos", "report", "logs", "services", "rate", "events", "producers", "projectors", "projection", "session-key", "pack"} {
			problem(given[flag], "--%s is about the services, and --stack-only starts none: leave one of them out", flag)
		}
	}
	return problems
}

// Refuses returns why a kind of harm cannot be done in this run; empty if it can.
func (o Options) Refuses(k chaos.Kind) string {
	switch {
	case o.External && k.OnServers() && k != chaos.MongoStepDown:
		return fmt.Sprintf("%s needs the embedded servers, and --external starts none: leave one of them out", k)
	case o.Azurite && k == chaos.Blob503:
		return fmt.Sprintf("%s is done by the in-process blob server: leave --azurite out", k)
	case k == chaos.Poison && (o.Projection != Timeline || o.Follow.URI != ""):
		return fmt.Sprintf("%s is done to the read model %s of events that this command inserts: leave out --projection and --follow", k, Timeline)
	}
	return ""
}

// tooLate lists the harm that would come after the load has ended, and have no effect. A load at
// full speed is not checked, because its duration is unknown.
func (o Options) tooLate() (problems []string) {
	events := max(o.Generate, len(o.Input))
	if o.Input != nil {
		events = len(o.Input)
	}
	if o.Rate <= 0 || events == 0 {
		return nil
	}
	ends := time.Duration(float64(events) / o.Rate * float64(time.Second))
	for _, a := range o.Chaos {
		if a.At > ends {
			problems = append(problems, fmt.Sprintf("--chaos %s: %d events at %v a second are loaded within %s, so it would come after them: an earlier time, "+
				"more --events or a lower --rate", a, events, o.Rate, ends.Round(100*time.Millisecond)))
		}
	}
	return problems
}

// readFiles reads what the flags name, so that a broken file stops the run before it begins.
func (o *Options) readFiles(input, expect, serviceBusConfig string) (problems []string) {
	var err error
	if input != "" {
		if o.Input, err = workload.ReadFile(input); err != nil {
			problems = append(problems, "--input: "+err.Error())
		}
	}
	if expect != "" {
		if o.Expected, err = readModel(expect); err != nil {
			problems = append(problems, "--expect: "+err.Error())
		}
	}
	if serviceBusConfig != "" {
		if o.Entities, err = readEntities(serviceBusConfig, o.StackOnly); err != nil {
			problems = append(problems, "--servicebus-config: "+err.Error())
		}
	}
	for _, file := range []struct{ flag, path string }{{"mongo-snapshot", o.Snapshot}, {"report", o.Report}} {
		if info, err := os.Stat(filepath.Dir(file.path)); file.path != "" && (err != nil || !info.IsDir()) {
			problems = append(problems, fmt.Sprintf("--%s: there is no directory %s to write it to", file.flag, filepath.Dir(file.path)))
		}
	}
	if o.Services != "" {
		for _, program := range []string{"producer", "projector"} {
			if info, err := os.Stat(filepath.Join(o.Services, program)); err != nil || info.IsDir() {
				problems = append(problems, fmt.Sprintf("--services: there is no program %s in %s: make build makes both, in bin", program, o.Services))
			}
		}
	}
	if o.Logs != "" {
		if err := os.MkdirAll(o.Logs, 0o755); err != nil {
			problems = append(problems, "--logs: "+err.Error())
		}
	}
	return problems
}

func readModel(path string) (m *history.Model, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if m, err = history.ReadModel(f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// readEntities reads a namespace. The services need something with sessions; an application may
// not.
func readEntities(path string, any bool) (*servicebus.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	entities, err := servicebus.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := emulator.FindRoute(entities); err != nil && !any {
		return nil, fmt.Errorf("%s: %w: set RequiresSession on one", path, err)
	}
	return &entities, nil
}

// Ends reports whether the run ends without a signal.
func (o Options) Ends() bool { return !o.Following() && (o.Once || (o.Input == nil && o.Generate > 0)) }
