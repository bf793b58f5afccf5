package producer

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-cdc/sluice/shared/answer"
	"github.com/sluice-cdc/sluice/shared/memory"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/tracing"
)

// Main is the whole program of a producer, for a func main of one line:
//
//	func main() { producer.Main() }
//
// Main does not return. It takes over the process:
//
//   - The command line selects a command. Without one, and with `run`, the producer publishes
//     until it is stopped. The other commands (such as status, token and doctor) inspect or change
//     a stream; `help` lists them.
//   - The environment holds the settings: those of [Config], and OpenTelemetry's own OTEL_* for
//     traces.
//   - SIGTERM and SIGINT stop it: what is in flight is published within SHUTDOWN_TIMEOUT, and the
//     lease is released. A second signal changes nothing.
//   - The log goes to standard output, one JSON object per line, as does the output of a command.
//     Errors in the command line or the settings go to standard error; a setting that stops the
//     service is logged as well.
//   - HTTP_ADDR serves /livez, /readyz, /status and /metrics.
//   - The exit code is 0 after a requested stop or if a command found no problem, 2 if a setting
//     or the command line is wrong, and 1 if the producer cannot continue or a command found a
//     problem.
//   - The producer works in a child process. If the child dies, its parent releases its leases,
//     so that another replica leads at once.
//
// A program that wants to share the process calls [Run] instead, with a context, a [Config] and a
// logger of its own.
func Main() { MainWith(Options{}) }

// MainWith is like [Main] for a program with options of its own, such as a checkpoint store. The
// logger, the instance and the tracer are those of Main.
func MainWith(opts Options) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := answer.Kept(ctx, "producer", os.Stdout, os.Stderr, func(out, errOut io.Writer) int {
		return Execute(ctx, os.Args[1:], loadStreams, opts, out, errOut, func(ctx context.Context, cfgs []Config) error {
			return publishStreams(ctx, cfgs, opts, out)
		})
	})
	stop()
	os.Exit(code)
}

// publishStreams executes the command run: it publishes in a child process until ctx ends.
func publishStreams(ctx context.Context, cfgs []Config, opts Options, out io.Writer) error {
	instance := telemetry.Instance()
	log := telemetry.LoggerIn(cfgs[0].LogFormat, out, cfgs[0].LogLevel, "producer", instance)
	opts.Logger, opts.Instance = log, instance
	return supervised(ctx, cfgs, opts, func(ctx context.Context, opts Options) error {
		telemetry.LogStart(log)
		memory.Bound()
		traces, err := tracing.FromEnvironment(ctx, "producer", instance, log)
		if err != nil {
			telemetry.LogRefused(out, "producer", err)
			return settings.Problems{err}
		}
		defer traces.Close(ctx)
		opts.Tracer = traces.Tracer("github.com/sluice-cdc/sluice/producer")
		if err := runStreams(ctx, cfgs, opts); err != nil {
			log.Error("producer failed", telemetry.KeyError, err)
			return err
		}
		log.Info("producer stopped")
		return nil
	})
}
