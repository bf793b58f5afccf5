// Command projector applies the changes of a session-enabled Service Bus subscription or queue to read models, and lets
// people look after them: `projector help` lists the commands. It is configured by environment variables; see the
// README. It exits with 0 after SIGTERM or SIGINT and where a command found all well, with 2 when a setting or the
// command line is wrong, and with 1 when it cannot go on or a command found a problem.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/tracing"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return projector.Main(ctx, os.Args[1:], projector.LoadConfig, projector.Options{}, os.Stdout, os.Stderr, project)
}

func project(ctx context.Context, cfg projector.Config) error {
	instance := telemetry.Instance()
	log := telemetry.Logger(os.Stdout, cfg.LogLevel, "projector", instance)
	telemetry.LogStart(log)
	traces, err := tracing.FromEnvironment(ctx, "projector", instance, log)
	if err != nil {
		return settings.Problems{err}
	}
	defer traces.Close(ctx)
	err = projector.Run(ctx, cfg, projector.Options{
		Logger: log, Instance: instance, Tracer: traces.Tracer("github.com/sluice-cdc/sluice/projector"),
	})
	if err != nil {
		log.Error("projector failed", telemetry.KeyError, err)
	}
	return err
}
