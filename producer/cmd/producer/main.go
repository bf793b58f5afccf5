// Command producer publishes the changes of a MongoDB collection to Azure Service Bus, and lets people look after a
// stream: `producer help` lists the commands. It is configured by environment variables: see docs/configure.md. It exits with
// 0 after SIGTERM or SIGINT and where a command found all well, with 2 when a setting or the command line is wrong, and
// with 1 when it cannot go on or a command found a problem.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/answer"
	"github.com/sluice-cdc/sluice/shared/memory"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/tracing"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return answer.Kept(ctx, "producer", os.Stdout, os.Stderr, func(out, errOut io.Writer) int {
		return producer.Main(ctx, os.Args[1:], producer.LoadStreams, producer.Options{}, out, errOut, publish)
	})
}

func publish(ctx context.Context, configs []producer.Config) error {
	instance := telemetry.Instance()
	log := telemetry.LoggerIn(configs[0].LogFormat, os.Stdout, configs[0].LogLevel, "producer", instance)
	return producer.Supervised(ctx, configs, producer.Options{Logger: log, Instance: instance}, func(ctx context.Context, o producer.Options) error {
		telemetry.LogStart(log)
		memory.Bound()
		traces, err := tracing.FromEnvironment(ctx, "producer", instance, log)
		if err != nil {
			telemetry.LogRefused(os.Stdout, "producer", err)
			return settings.Problems{err}
		}
		defer traces.Close(ctx)
		o.Tracer = traces.Tracer("github.com/sluice-cdc/sluice/producer")
		if err := producer.RunStreams(ctx, configs, o); err != nil {
			log.Error("producer failed", telemetry.KeyError, err)
			return err
		}
		log.Info("producer stopped")
		return nil
	})
}
