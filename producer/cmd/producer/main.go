// Command producer publishes the changes of a MongoDB collection to Azure Service Bus. It is configured by environment
// variables; see the README. It exits with 0 after SIGTERM or SIGINT, with 2 when a setting is wrong, and with 1 when it
// cannot go on.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

func main() { os.Exit(run()) }

func run() int {
	config, err := producer.LoadConfig()
	if err != nil {
		fmt.Fprintln(os.Stderr, "producer:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	instance := telemetry.Instance()
	log := telemetry.Logger(os.Stdout, config.LogLevel, "producer", instance)
	telemetry.LogStart(log)
	if err := producer.Run(ctx, config, producer.Options{Logger: log, Instance: instance}); err != nil {
		log.Error("stopped by an error", telemetry.KeyError, err)
		return 1
	}
	log.Info("stopped")
	return 0
}
