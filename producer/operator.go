package producer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/operate"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/checkup"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// The exit codes of the program.
const (
	ExitOK      = 0
	ExitProblem = 1 // something failed, was refused, or was found to be wrong
	ExitUsage   = 2 // the command line or a setting is wrong; nothing has been tried
)

// Usage is the program's help.
const Usage = `usage: producer [COMMAND]

  run                             take part in the election and publish (also without a command)
  status [--json]                 leader, epoch, position, lag, from the checkpoint blob and MongoDB alone
  token show                      the checkpoint's resume token
  token set TOKEN [--force] [--forward]
                                  move the checkpoint to a token: its _data, or the whole document as JSON
  token rewind --to TIME [--force]
                                  move the checkpoint back to a time (RFC 3339, such as 2026-01-31T15:04:05Z)
  token renumber                  accept a changed PIPELINE or collection where positions are counted
  session-key KEY --drained       publish by another SESSION_KEY from now on, when nothing of the old one is left anywhere
  lease break                     free the lease, whoever holds it
  doctor [--json]                 check every setting and permission against the services
  help                            this text

--force breaks the lease of a producer that leads. --forward lets the checkpoint skip changes.
--stream NAME says which, where STREAMS names several; every command but run needs it then.
It is configured by environment variables, for every command as for run: see the README.
It exits with 0: fine, 1: a problem was found or the command failed, 2: wrong usage or settings.
`

// command is a command line that has been understood.
type command struct {
	stream  string // of several
	name    string // run, help, status, token show, token set, token rewind, token renumber, session-key, lease break, doctor
	json    bool
	change  operate.Change
	token   string
	instant time.Time
	key     envelope.SessionKey
	drained bool
}

// ErrUsage is a command line that cannot be understood.
var ErrUsage = errors.New("wrong usage")

// parse understands a command line. Errors: [ErrUsage], with a sentence about what to do.
func parse(args []string) (c command, err error) {
	if len(args) == 0 {
		return command{name: "run"}, nil
	}
	if slices.Contains([]string{"-h", "-help", "--help"}, args[0]) {
		return command{name: "help"}, nil
	}
	c.name, args = args[0], args[1:]
	if group := map[string]string{"token": "show, set, rewind or renumber", "lease": "break"}[c.name]; group != "" {
		if len(args) == 0 {
			return c, fmt.Errorf("%w: %q needs a second word: %s", ErrUsage, "producer "+c.name, group)
		}
		c.name, args = c.name+" "+args[0], args[1:]
	}
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	to, operands := "", 0
	if c.name != "run" && c.name != "help" {
		flags.StringVar(&c.stream, "stream", "", "")
	}
	switch c.name {
	case "run", "help", "token show", "token renumber", "lease break":
	case "status", "doctor":
		flags.BoolVar(&c.json, "json", false, "")
	case "token set":
		operands = 1
		flags.BoolVar(&c.change.Force, "force", false, "")
		flags.BoolVar(&c.change.Forward, "forward", false, "")
	case "session-key":
		operands = 1
		flags.BoolVar(&c.drained, "drained", false, "")
	case "token rewind":
		flags.BoolVar(&c.change.Force, "force", false, "")
		flags.StringVar(&to, "to", "", "")
	default:
		return c, fmt.Errorf("%w: there is no command %q; `producer help` lists them", ErrUsage, c.name)
	}
	rest, err := parseMixed(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return command{name: "help"}, nil
	case err != nil:
		return c, fmt.Errorf("%w: producer %s: %w; see `producer help`", ErrUsage, c.name, err)
	case len(rest) < operands:
		return c, fmt.Errorf("%w: producer %s needs %s", ErrUsage, c.name, map[string]string{
			"token set":   "the token: its _data, or the whole document as JSON in quotes",
			"session-key": "the new SESSION_KEY: aggregate, or bucket:N",
		}[c.name])
	case len(rest) > operands:
		return c, fmt.Errorf("%w: producer %s does not take %q", ErrUsage, c.name, rest[operands])
	case c.name == "session-key":
		if err := c.key.UnmarshalText([]byte(rest[0])); err != nil {
			return c, fmt.Errorf("%w: producer session-key: %w", ErrUsage, err)
		}
	case operands == 1:
		c.token = rest[0]
	}
	if c.name == "token rewind" {
		if c.instant, err = time.Parse(time.RFC3339, to); err != nil {
			return c, fmt.Errorf("%w: producer token rewind needs --to with a time of RFC 3339, such as 2026-01-31T15:04:05Z (it is %q)",
				ErrUsage, to)
		}
	}
	return c, nil
}

// parseMixed lets flags stand before and after the operands.
func parseMixed(flags *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return operands, nil
		}
		operands, args = append(operands, flags.Arg(0)), flags.Args()[1:]
	}
}

// Main is the program behind its signals: it understands args (without the program's name), loads the configuration, does
// what was asked for and returns the exit code. run is what happens without a command.
func Main(ctx context.Context, args []string, load func() ([]Config, error), o Options, out, errOut io.Writer,
	run func(context.Context, []Config) int,
) int {
	c, err := parse(args)
	if err != nil {
		fmt.Fprintln(errOut, "producer:", err)
		return ExitUsage
	}
	if c.name == "help" {
		fmt.Fprint(out, Usage)
		return ExitOK
	}
	configs, err := load()
	if err == nil && c.name == "run" {
		return run(ctx, configs)
	}
	var config Config
	if err == nil {
		config, err = choose(configs, c.stream)
	}
	if err != nil {
		fmt.Fprintln(errOut, "producer:", err)
		return ExitUsage
	}
	if err := c.operate(ctx, config, o, out); err != nil {
		if !errors.Is(err, errFound) {
			fmt.Fprintln(errOut, "producer:", err)
		}
		return ExitProblem
	}
	return ExitOK
}

// errFound: the doctor has printed what is wrong.
var errFound = errors.New("problems were found")

func (c command) operate(ctx context.Context, config Config, o Options, out io.Writer) error {
	given := o.Mongo
	o.Mongo = func(m *options.ClientOptions) {
		mongodb.Interactive(m)
		if given != nil {
			given(m)
		}
	}
	shared, err := connect([]Config{config}, o)
	if err != nil {
		return err
	}
	defer shared.close(ctx)
	stream, err := config.operating(shared.streams[0], o)
	if err != nil {
		return err
	}

	switch c.name {
	case "status":
		status, err := stream.Status(ctx)
		if status.Stream == "" {
			return err
		}
		if c.json {
			return errors.Join(writeJSON(out, status), err)
		}
		status.Print(out)
		return err
	case "token show":
		return stream.TokenShow(ctx, out)
	case "token set":
		return stream.TokenSet(ctx, c.token, c.change, out)
	case "token rewind":
		return stream.TokenRewind(ctx, c.instant, c.change, out)
	case "session-key":
		return stream.SetSessionKey(ctx, c.key, c.drained, out)
	case "token renumber":
		return stream.TokenRenumber(ctx, out)
	case "lease break":
		return stream.BreakLease(ctx, out)
	case "doctor":
		findings := append(checkup.Findings{{Check: "settings", OK: true, Says: "all can be read and agree"}}, stream.Doctor(ctx)...)
		if c.json {
			if err := writeJSON(out, findings); err != nil {
				return err
			}
		} else {
			findings.Print(out)
		}
		if !findings.Healthy() {
			return errFound
		}
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUsage, c.name)
}

func (c *Config) operating(clients *clients, o Options) (*operate.Stream, error) {
	reading := c.reading(0)
	settings, err := reading.Settings(clients.collection)
	if err != nil {
		return nil, err
	}
	instance := o.Instance
	if instance == "" {
		instance = telemetry.Instance()
	}
	stream := &operate.Stream{
		Name:       c.Stream,
		Container:  clients.blob.ServiceClient().NewContainerClient(c.Container),
		Collection: clients.collection,
		Dial: func() (*azservicebus.Client, error) {
			credential := o.Credential
			if credential == nil && c.ServiceBus.ConnectionString == "" {
				var err error
				if credential, err = azure.Credential(); err != nil {
					return nil, err
				}
			}
			return c.ServiceBus.Client(credential, busOptions(o.ServiceBus))
		},
		Entity:        c.entity(),
		LocalAuth:     c.ServiceBus.ConnectionString != "",
		Operator:      "operator@" + strings.TrimSpace(instance),
		LeaseDuration: c.LeaseDuration,
		FullDocument:  fullDocument(c.FullDocument),
		BeforeChange:  fullDocument(c.BeforeChange),
		Pipeline:      reading.Pipeline,
		Settings:      settings,
		Unstable:      reading.Unstable(),
	}
	if c.OnOversize == "claimcheck" {
		stream.Claims = clients.blob.ServiceClient().NewContainerClient(c.ClaimContainer)
	}
	return stream, nil
}

func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
