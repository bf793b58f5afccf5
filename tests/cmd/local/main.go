// Command local shows the whole pipeline at work on this machine: embedded servers that speak the
// real protocols, the producer and the projector as processes of their own, events in, harm done,
// everything checked.
//
// It exits with 0 only when the read model came out exactly right, with 1 when it did not, with 2
// when it was called wrongly, and with 130 when it was interrupted before it was done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sluice-cdc/sluice/shared/terminal"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/report"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/run"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/view"
)

func main() { os.Exit(local(os.Args[1:])) }

func local(args []string) int {
	options, err := flags.Parse(args, os.Getenv, os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return failed(err)
	}
	stop, stopped := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stopped()
	// A terminal or a pipe that is closed ends the run as Ctrl-C does, and not the program before
	// the report is written.
	signal.Ignore(syscall.SIGPIPE)
	live := view.New(os.Stdout, options.Quiet, stopped)
	if options.Console == flags.AutoConsole {
		options.Console = map[bool]string{true: flags.UsualConsole}[!options.Quiet && view.Columns(os.Stdout) > 0]
	}
	ctx, cancel := run.Lifetime(stop, options.Ends() || options.StackOnly)
	defer cancel()

	if options.StackOnly {
		if err := run.Serve(ctx, options, os.Stdout); err != nil {
			return failed(err)
		}
		return 0
	}
	outcome, err := run.Run(ctx, stop.Done(), options, live, func(outcome report.Outcome) {
		var summary strings.Builder
		outcome.Summary(&summary)
		fmt.Print(terminal.Wrap(summary.String(), view.Columns(os.Stdout)))
	})
	if err != nil {
		return failed(err)
	}
	if options.Report != "" {
		if err := outcome.Write(options.Report); err != nil {
			return failed(err)
		}
	}
	if !outcome.OK() {
		return 1
	}
	return 0
}

// failed reports an error and returns its exit code.
func failed(err error) int {
	if usage, ok := errors.AsType[*flags.UsageError](err); ok {
		fmt.Fprintln(os.Stderr, terminal.Wrap("local: "+strings.Join(usage.Problems, "\nlocal: "), view.Columns(os.Stderr)))
		return 2
	}
	fmt.Fprintln(os.Stderr, terminal.Wrap("local: "+err.Error(), view.Columns(os.Stderr)))
	if errors.Is(err, run.ErrInterrupted) {
		return 130
	}
	return 1
}
