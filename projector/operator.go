package projector

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// The exit codes of the program.
const (
	ExitOK      = 0
	ExitProblem = 1 // something failed, was refused, or was found to be wrong
	ExitUsage   = 2 // the command line or a setting is wrong; nothing has been tried
)

// command is one thing the program does.
type command struct {
	name    string // one word or two
	takes   string // what the usage says behind the name
	says    string // what it does, for the usage
	operand string // what its one operand is; empty: it takes none
	// flags declares what it takes beside the operand; nil: nothing.
	flags func(*flag.FlagSet, *request)
	// check finds what is wrong with a request before anything is tried; nil: nothing can be.
	check func(request) error
	// do does it. An error is printed and makes the exit code [ExitProblem]. nil is for run and help, which need no desk.
	do func(context.Context, *desk, request) error
}

// request is a command line that has been understood.
type request struct {
	operand string
	json    bool
	sample  int64         // of verify
	hold    int64         // of verify
	wait    time.Duration // for a session, or for a difference to heal
	all     bool
	yes     bool
}

// commands are all commands, in the order of the usage.
func commands() []command {
	all := []command{{name: "run", says: "receive and apply (also without a command)"}, statusCommand()}
	all = append(all, parkedCommands()...)
	return append(all, verifyCommand(), doctorCommand(), command{name: "help", says: "this text"})
}

// usage is the program's help.
func usage() string {
	var b strings.Builder
	b.WriteString("usage: projector [COMMAND]\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %s\t%s\n", strings.TrimSpace(c.name+" "+c.takes), c.says)
	}
	_ = w.Flush() // a strings.Builder takes everything
	b.WriteString("\nIt is configured by environment variables, for every command as for run: see the README.\n" +
		"It exits with 0: fine, 1: a problem was found or the command failed, 2: wrong usage or settings.\n")
	return b.String()
}

// ErrUsage is a command line that cannot be understood.
var ErrUsage = errors.New("wrong usage")

// parse understands a command line. Errors: [ErrUsage], with a sentence about what to do.
func parse(args []string) (command, request, error) {
	var r request
	all := commands()
	if len(args) == 0 {
		return all[0], r, nil
	}
	if slices.Contains([]string{"-h", "-help", "--help"}, args[0]) {
		return command{name: "help"}, r, nil
	}
	c, args, err := find(all, args)
	if err != nil {
		return c, r, err
	}
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if c.flags != nil {
		c.flags(flags, &r)
	}
	rest, err := parseMixed(flags, args)
	if c.operand != "" && len(rest) > 0 {
		r.operand, rest = rest[0], rest[1:]
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return command{name: "help"}, r, nil
	case err != nil:
		return c, r, fmt.Errorf("%w: projector %s: %w; see `projector help`", ErrUsage, c.name, err)
	case len(rest) > 0:
		return c, r, fmt.Errorf("%w: projector %s does not take %q", ErrUsage, c.name, rest[0])
	case c.check != nil:
		if err := c.check(r); err != nil {
			return c, r, fmt.Errorf("%w: projector %s %w", ErrUsage, c.name, err)
		}
	}
	return c, r, nil
}

// find finds the command that args begin with, and what follows it.
func find(all []command, args []string) (command, []string, error) {
	var seconds []string // the second words that the first word can have
	for _, c := range all {
		first, second, two := strings.Cut(c.name, " ")
		switch {
		case first != args[0]:
		case !two:
			return c, args[1:], nil
		case len(args) > 1 && args[1] == second:
			return c, args[2:], nil
		default:
			seconds = append(seconds, second)
		}
	}
	if len(seconds) == 0 {
		return command{}, nil, fmt.Errorf("%w: there is no command %q; `projector help` lists them", ErrUsage, args[0])
	}
	return command{}, nil, fmt.Errorf("%w: %q needs a second word: one of %s", ErrUsage, "projector "+args[0], strings.Join(seconds, ", "))
}

// parseMixed lets flags stand before and after the operands.
func parseMixed(flags *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return operands, err
		}
		if flags.NArg() == 0 {
			return operands, nil
		}
		operands, args = append(operands, flags.Arg(0)), flags.Args()[1:]
	}
}

// Main is the program behind its signals: it understands args (without the program's name), loads the configuration, does
// what was asked for and returns the exit code. run is what happens without a command.
func Main(ctx context.Context, args []string, load func() (Config, error), o Options, out, errOut io.Writer,
	run func(context.Context, Config) error,
) int {
	c, r, err := parse(args)
	if err != nil {
		fmt.Fprintln(errOut, "projector:", err)
		return ExitUsage
	}
	if c.name == "help" {
		fmt.Fprint(out, usage())
		return ExitOK
	}
	config, err := load()
	if err == nil {
		if c.do == nil {
			err = run(ctx, config)
		} else {
			err = operate(ctx, c, r, config, o, out)
		}
	}
	if err == nil {
		return ExitOK
	}
	if _, wrong := errors.AsType[settings.Problems](err); wrong {
		fmt.Fprintln(errOut, "projector:", err)
		return ExitUsage
	}
	if c.do != nil && !errors.Is(err, errFound) {
		fmt.Fprintln(errOut, "projector:", err)
	}
	return ExitProblem
}

// errFound is a problem that the command has printed itself.
var errFound = errors.New("problems were found")

// desk is what a command works with: the clients of a projector that does not run.
type desk struct {
	*service
	bus    *azservicebus.Client
	out    io.Writer
	adjust func(*options.ClientOptions) // of every MongoDB client
}

// operate does one command other than run.
func operate(ctx context.Context, c command, r request, cfg Config, o Options, out io.Writer) error {
	given := o.Mongo
	o.Mongo = func(m *options.ClientOptions) {
		mongodb.Interactive(m)
		if given != nil {
			given(m)
		}
	}
	cfg.Connections = 1
	s, err := open(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	bus, err := s.dial()
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = bus.Close(closing)
	}()
	return c.do(ctx, &desk{service: s, bus: bus, out: out, adjust: o.Mongo}, r)
}

// writeJSON writes what --json asks for.
func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
