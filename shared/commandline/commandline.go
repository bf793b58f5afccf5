// Package commandline is the command line of a service's program, which runs the service and has
// commands to operate it.
//
// Guaranteed: nothing is done before the whole command line is understood. An error describes what
// is wrong with it and what to do instead. The exit code distinguishes a wrong command line or
// setting from a problem.
package commandline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
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
	// ErrFound is a problem that the command has already printed.
	ErrFound = errors.New("problems were found")
)

// Program is what a program can do. R is what a command line asks for; D is what commands work
// with.
type Program[D, R any] struct {
	Name string
	// Commands are all commands except help, in the order of the help. The first is the default.
	Commands []Command[D, R]
	// Flags declares the flags of all commands that have a Do; nil means none.
	Flags func(*flag.FlagSet, *R)
	// Notes are lines of the help after the commands, each with its newline.
	Notes string
}

// Command is one thing that a program does.
type Command[D, R any] struct {
	Name    string // one word or two
	Takes   string // shown after the name in the help
	Summary string // what the command does, for the help
	// Operand is true if the command takes an operand.
	Operand bool
	// More takes the operands behind the first one. A command without it takes one at most.
	More func(others []string, r *R)
	// Flags declares the command's flags; nil means none.
	Flags func(*flag.FlagSet, *R)
	// Check takes the operand, which is empty if it is missing, and returns what is wrong with it
	// or the flags. It may be nil.
	Check func(operand string, r *R) error
	// Do runs the command. It is nil for the program's own work, which logs its own errors, for
	// help, and if there is a Local.
	Do func(context.Context, D, R) error
	// Local runs a command that needs neither settings nor services.
	Local func(out io.Writer) error
}

// Main runs the program apart from its signals: it understands args (without the program's
// name), passes the command on to do, and returns the exit code. The error of the program's own
// work may choose it, with a method ExitCode.
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

// all returns the program's commands, and those that every program has.
func (p Program[D, R]) all() []Command[D, R] {
	return append(slices.Clone(p.Commands), versionCommand[D, R](p.Name), completionCommand(p), Command[D, R]{
		Name: "help", Takes: "[COMMAND]", Summary: "this text, or what a command takes",
	})
}

// helped returns a command that prints a help text.
func helped[D, R any](text string) Command[D, R] {
	return Command[D, R]{Name: "help", Local: func(out io.Writer) error {
		_, err := io.WriteString(out, text)
		return err
	}}
}

// Usage returns the program's help.
func (p Program[D, R]) Usage() string {
	closing := p.Notes + "`" + p.Name + " COMMAND --help` describes one command. Flags stand before --, and behind it an operand that begins with -.\n" + closing
	return "usage: " + p.Name + " [COMMAND]\n\n" + listOf(p.all()) + "\n" + strings.ReplaceAll(terminal.Wrap(closing, columns), "\n  ", "\n")
}

// columns is the width of every help text: that of the narrowest terminal that is usual.
const columns = 80

// listOf returns a line for each command, with what it does below.
func listOf[D, R any](commands []Command[D, R]) string {
	var b strings.Builder
	for _, c := range commands {
		b.WriteString(terminal.Wrap("  "+strings.TrimSpace(c.Name+" "+c.Takes)+"\n", columns))
		b.WriteString(strings.ReplaceAll(terminal.Wrap("    "+strings.Join(strings.Fields(c.Summary), " ")+"\n", columns), "\n      ", "\n    "))
	}
	return b.String()
}

// group returns the commands of two words that begin with this one.
func (p Program[D, R]) group(first string) []Command[D, R] {
	return slices.DeleteFunc(p.all(), func(c Command[D, R]) bool { return !strings.HasPrefix(c.Name, first+" ") })
}

const closing = "It is configured by environment variables, for every command as for run: see docs/configure.md.\n" +
	"It exits with 0: fine, 1: a problem was found or the command failed, 2: wrong usage or settings.\n"

// usageOf returns the help of one command.
func (p Program[D, R]) usageOf(c Command[D, R]) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n\n", strings.TrimSpace(p.Name+" "+c.Name+" "+c.Takes))
	b.WriteString(strings.ReplaceAll(terminal.Wrap(strings.Join(strings.Fields(c.Summary), " ")+".\n", columns), "\n  ", "\n"))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	lead := "\n"
	p.flags(c, new(R)).VisitAll(func(f *flag.Flag) {
		kind, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(w, "%s  %s\t%s%s\n", lead, strings.TrimSpace("--"+f.Name+" "+kind), usage, unlessZero(f))
		lead = ""
	})
	_ = w.Flush()
	b.WriteString("\n" + closing)
	return terminal.Wrap(b.String(), columns)
}

func unlessZero(f *flag.Flag) string {
	if slices.Contains([]string{"", "0", "false", "0s"}, f.DefValue) {
		return ""
	}
	return " (default " + f.DefValue + ")"
}

// flags returns the flags of a command.
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

// parse understands a command line. Errors: [ErrUsage], with what to do.
func (p Program[D, R]) parse(args []string) (c Command[D, R], r R, err error) {
	switch {
	case len(args) == 0:
		return p.Commands[0], r, nil
	case asksForHelp(args[0]), args[0] == "help" && (len(args) == 1 || asksForHelp(args[1])):
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
		if c.More != nil && err == nil {
			c.More(rest, &r)
			rest = nil
		}
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return helped[D, R](p.usageOf(c)), r, nil
	case err != nil:
		return c, r, fmt.Errorf("%w: %s %s: %w; see `%s %s --help`", ErrUsage, p.Name, c.Name, err, p.Name, c.Name)
	case len(rest) > 0:
		hint := ""
		if strings.HasPrefix(rest[0], "-") && slices.Contains(args, "--") {
			hint = "; flags stand before --"
		}
		return c, r, fmt.Errorf("%w: %s %s does not take %q%s", ErrUsage, p.Name, c.Name, rest[0], hint)
	case c.Check != nil:
		if err := c.Check(operand, &r); err != nil {
			return c, r, fmt.Errorf("%w: %s %s %w", ErrUsage, p.Name, c.Name, err)
		}
	}
	return c, r, nil
}

// find returns the command that args begin with, and the arguments after it.
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
		meant := ""
		if near := settings.Near(args[0], p.words()[""]); near != "" {
			meant = " did you mean " + near + "?"
		}
		return Command[D, R]{}, nil, fmt.Errorf("%w: there is no command %q;%s `%s help` lists them", ErrUsage, args[0], meant, p.Name)
	case len(args) == 1:
		return Command[D, R]{}, nil, fmt.Errorf("%w: %q is not a whole command; choose one of these:\n%s", ErrUsage, args[0], strings.TrimSuffix(listOf(group), "\n"))
	default:
		return Command[D, R]{}, nil, fmt.Errorf("%w: there is no command %q; choose one of these:\n%s", ErrUsage, args[0]+" "+args[1], strings.TrimSuffix(listOf(group), "\n"))
	}
}

func asksForHelp(arg string) bool { return slices.Contains([]string{"-h", "-help", "--help"}, arg) }

// parseMixed parses flags before and after the operands. After --, everything is an operand.
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

// Invocation returns what people type to run a program: the name of its executable, os.Args[0], or
// `go run .` where the go command has built it for one run. Messages name commands by it, so that
// they can be copied whatever the program is called.
func Invocation(executable string) string {
	slashed := filepath.ToSlash(executable)
	if strings.Contains(slashed, "/go-build") && strings.HasSuffix(filepath.ToSlash(filepath.Dir(slashed)), "/exe") {
		return "go run ."
	}
	return strings.TrimSuffix(filepath.Base(slashed), ".exe")
}
