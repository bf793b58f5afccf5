package projector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/answer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/memory"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/tracing"
)

// Main is the whole program of a projector, for a func main of one line:
//
//	func main() { projector.Main(CustomerTotals{}) }
//
// The program has the given projections, and without any those of [projection.Builtin]. PROJECTION
// chooses among them; it may be unset if there is only one.
//
// Main does not return. It takes the process for itself:
//
//   - The command line names the command: none or `run` projects until it is stopped; the other
//     commands (status, parked, verify, doctor) manage the read model, and `help` lists them.
//   - The environment holds the settings: those of [Config], and OpenTelemetry's own OTEL_* for
//     traces. Files and flags hold no settings.
//   - SIGTERM and SIGINT stop it: the batches in hand are finished within SHUTDOWN_TIMEOUT and the
//     sessions released. A second signal changes nothing.
//   - The log goes to standard output, one JSON object a line, and so does the output of a command.
//     Errors of the command line or of a setting go to standard error; a setting that stops the
//     service is in the log, too.
//   - HTTP_ADDR serves /livez, /readyz, /status, /metrics and /applied.
//   - The exit code is 0 after a requested stop and after a command that found no problem, 2 if a
//     setting, the command line or a projection's name is wrong, and 1 if it cannot continue or a
//     command found a problem.
//
// A program that wants to share the process calls [Run] instead, with a context, a [Config] and a
// logger of its own.
func Main(projections ...projection.Projection) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	program := commandline.Invocation(os.Args[0])
	code := answer.Kept(ctx, "projector", os.Stdout, os.Stderr, func(out, errOut io.Writer) int {
		return serve(ctx, program, os.Args[1:], projections, out, errOut)
	})
	stop()
	os.Exit(code)
}

// serve does what [Main] does within the process, and returns the exit code.
func serve(ctx context.Context, program string, args []string, projections []projection.Projection, out, errOut io.Writer) int {
	o := Options{Program: program}
	if len(projections) > 0 {
		var err error
		if o.Projections, err = projection.NewRegistry(projections...); err != nil {
			fmt.Fprintln(errOut, program+":", err)
			return commandline.ExitUsage
		}
	}
	return Execute(ctx, args, LoadConfig, o, out, errOut, func(ctx context.Context, cfg Config) error {
		return project(ctx, cfg, o, out)
	})
}

// project executes the command run: it logs, traces and projects until ctx ends.
func project(ctx context.Context, cfg Config, o Options, out io.Writer) error {
	o.Instance = telemetry.Instance()
	o.Logger = telemetry.LoggerIn(cfg.LogFormat, out, cfg.LogLevel, "projector", o.Instance)
	telemetry.LogStart(o.Logger)
	memory.Bound()
	traces, err := tracing.FromEnvironment(ctx, "projector", o.Instance, o.Logger)
	if err != nil {
		telemetry.LogRefused(out, "projector", err)
		return settings.Problems{err}
	}
	defer traces.Close(ctx)
	o.Tracer = traces.Tracer("github.com/sluice-cdc/sluice/projector")
	err = Run(ctx, cfg, o)
	if _, wrong := errors.AsType[settings.Problems](err); wrong { // such as a projection that does not exist
		o.Logger.Error("settings are wrong", telemetry.KeyError, err)
	} else if err != nil {
		o.Logger.Error("projector failed", telemetry.KeyError, err)
	}
	return err
}
