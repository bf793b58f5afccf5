// Package commandline is the command line of a service's program: it runs the service, and has commands to operate it.
//
// Guaranteed: nothing is done before the whole command line is understood; an error says what is wrong with it and what to do
// instead. The exit code tells a wrong command line or setting from a problem.
package commandline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// The exit codes of the programs.
const (
	ExitOK      = 0
	ExitProblem = 1 // something failed, was refused, or was found to be wrong
	ExitUsage   = 2 // the command line or a setting is wrong; nothing has been tried
)

var (
	// ErrUsage is a command line that cannot be understood.
	ErrUsage = errors.New("wrong usage")
	// ErrFound is a problem that the command has shown itself.
	ErrFound = errors.New("problems were found")
)

// Program is what a program can do. R is what a command line asks for, D what commands work with.
type Program[D, R any] struct {
	Name string
	// Commands are all but help, in the order of the help. The first is meant where none is given.
	Commands []Command[D, R]
	// Flags declares what every command takes that has a Do; nil: nothing.
	Flags func(*flag.FlagSet, *R)
	// Notes is what the help says behind the commands, each line with its end.
	Notes string
}

// Command is one thing that a program does.
type Command[D, R any] struct {
	Name  string // one word or two
	Takes string // what the help says behind the name
	Says  string // what it does, for the help
	// Operand says that it takes one.
	Operand bool
	// Flags declares what it takes beside the operand; nil: nothing.
	Flags func(*flag.FlagSet, *R)
	// Check takes the operand, empty where it is missing, and says what is wrong with it or the flags; nil: nothing can be.
	Check func(operand string, r *R) error
	// Do does it. nil is for the program's own work, which logs its own errors, for help, and where there is Local.
	Do func(context.Context, D, R) error
	// Local does it with neither settings nor services.
	Local func(out io.Writer) error
}

// Main is the program behind its signals: it understands args (without the program's name), hands on what is to be done, and
// gives the exit code: what is done without a command may name it, by the method ExitCode of its error.
func (p Program[D, R]) Main(args []string, out, errOut io.Writer, do func(Command[D, R], R) error) int {
	c, r, err := p.parse(args)
	switch {
	case err != nil:
	case c.Local != nil:
		err = c.Local(out)
	default:
		err = do(c, r)
	}
	if err == nil {
		return ExitOK
	}
	if _, wrong := errors.AsType[settings.Problems](err); wrong || errors.Is(err, ErrUsage) {
		fmt.Fprintln(errOut, p.Name+":", terminal.Lines(err.Error()))
		return ExitUsage
	}
	if (c.Do != nil || c.Local != nil) && !errors.Is(err, ErrFound) {
		fmt.Fprintln(errOut, p.Name+":", terminal.Lines(err.Error()))
	}
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok && c.Do == nil {
		return coded.ExitCode()
	}
	return ExitProblem
}

// all are the commands with those that every program has.
func (p Program[D, R]) all() []Command[D, R] {
	return append(slices.Clone(p.Commands), versionCommand[D, R](p.Name), completionCommand(p), Command[D, R]{
		Name: "help", Takes: "[COMMAND]", Says: "this text, or what a command takes",
	})
}

// helped is the command that prints a help.
func helped[D, R any](text string) Command[D, R] {
	return Command[D, R]{Name: "help", Local: func(out io.Writer) error {
		_, err := io.WriteString(out, text)
		return err
	}}
}

// Usage is the program's help.
func (p Program[D, R]) Usage() string {
	return "usage: " + p.Name + " [COMMAND]\n\n" + listOf(p.all()) + "\n" + p.Notes +
		"`" + p.Name + " COMMAND --help` tells of one command. An operand that begins with - goes behind --.\n" + closing
}

// listOf is a line for each command.
func listOf[D, R any](commands []Command[D, R]) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range commands {
		fmt.Fprintf(w, "  %s\t%s\n", strings.TrimSpace(c.Name+" "+c.Takes), c.Says)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// group are the commands whose first word of two is this one.
func (p Program[D, R]) group(first string) (commands []Command[D, R]) {
	for _, c := range p.all() {
		if strings.HasPrefix(c.Name, first+" ") {
			commands = append(commands, c)
		}
	}
	return commands
}

const closing = "It is configured by environment variables, for every command as for run: see docs/configure.md.\n" +
	"It exits with 0: fine, 1: a problem was found or the command failed, 2: wrong usage or settings.\n"

// usageOf is the help of one command.
func (p Program[D, R]) usageOf(c Command[D, R]) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n\n%s.\n", strings.TrimSpace(p.Name+" "+c.Name+" "+c.Takes), strings.Join(strings.Fields(c.Says), " "))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	lead := "\n"
	p.flags(c, new(R)).VisitAll(func(f *flag.Flag) {
		kind, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(w, "%s  %s\t%s%s\n", lead, strings.TrimSpace("--"+f.Name+" "+kind), usage, unlessZero(f))
		lead = ""
	})
	_ = w.Flush()
	b.WriteString("\n" + closing)
	return b.String()
}

func unlessZero(f *flag.Flag) string {
	if slices.Contains([]string{"", "0", "false", "0s"}, f.DefValue) {
		return ""
	}
	return " (default " + f.DefValue + ")"
}

// flags declares what a command takes.
func (p Program[D, R]) flags(c Command[D, R], r *R) *flag.FlagSet {
	flags := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if p.Flags != nil && c.Do != nil {
		p.Flags(flags, r)
	}
	if c.Flags != nil {
		c.Flags(flags, r)
	}
	return flags
}

// parse understands a command line. Errors: [ErrUsage], with a sentence about what to do.
func (p Program[D, R]) parse(args []string) (c Command[D, R], r R, err error) {
	switch {
	case len(args) == 0:
		return p.Commands[0], r, nil
	case asksForHelp(args[0]), len(args) == 1 && args[0] == "help":
		return helped[D, R](p.Usage()), r, nil
	case slices.Contains([]string{"-version", "--version"}, args[0]):
		args[0] = "version"
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	if group := p.group(args[0]); len(group) > 0 && len(args) > 1 && asksForHelp(args[1]) {
		return helped[D, R]("usage: " + p.Name + " " + args[0] + " COMMAND\n\n" + listOf(group) + "\n" + closing), r, nil
	}
	if c, args, err = p.find(args); err != nil {
		return c, r, err
	}
	rest, err := parseMixed(p.flags(c, &r), args)
	operand := ""
	if c.Operand && len(rest) > 0 {
		operand, rest = rest[0], rest[1:]
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return helped[D, R](p.usageOf(c)), r, nil
	case err != nil:
		return c, r, fmt.Errorf("%w: %s %s: %w; see `%s %s --help`", ErrUsage, p.Name, c.Name, err, p.Name, c.Name)
	case len(rest) > 0:
		return c, r, fmt.Errorf("%w: %s %s does not take %q", ErrUsage, p.Name, c.Name, rest[0])
	case c.Check != nil:
		if err := c.Check(operand, &r); err != nil {
			return c, r, fmt.Errorf("%w: %s %s %w", ErrUsage, p.Name, c.Name, err)
		}
	}
	return c, r, nil
}

// find finds the command that args begin with, and what follows it.
func (p Program[D, R]) find(args []string) (Command[D, R], []string, error) {
	for _, c := range p.all() {
		first, second, two := strings.Cut(c.Name, " ")
		switch {
		case first != args[0]:
		case !two:
			return c, args[1:], nil
		case len(args) > 1 && args[1] == second:
			return c, args[2:], nil
		}
	}
	switch group := p.group(args[0]); {
	case len(group) == 0:
		return Command[D, R]{}, nil, fmt.Errorf("%w: there is no command %q; `%s help` lists them", ErrUsage, args[0], p.Name)
	case len(args) == 1:
		return Command[D, R]{}, nil, fmt.Errorf("%w: %q is not a whole command; choose one of these:\n%s", ErrUsage, args[0], strings.TrimSuffix(listOf(group), "\n"))
	default:
		return Command[D, R]{}, nil, fmt.Errorf("%w: there is no command %q; choose one of these:\n%s", ErrUsage, args[0]+" "+args[1], strings.TrimSuffix(listOf(group), "\n"))
	}
}

func asksForHelp(arg string) bool { return slices.Contains([]string{"-h", "-help", "--help"}, arg) }

// parseMixed lets flags stand before and after the operands. Behind -- everything is an operand, whatever it begins with.
func parseMixed(flags *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return operands, err
		}
		switch taken := len(args) - flags.NArg(); {
		case flags.NArg() == 0:
			return operands, nil
		case taken > 0 && args[taken-1] == "--":
			return append(operands, flags.Args()...), nil
		}
		operands, args = append(operands, flags.Arg(0)), flags.Args()[1:]
	}
}
