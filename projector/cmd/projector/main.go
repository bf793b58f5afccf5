// Command projector applies the changes of a session-enabled Service Bus subscription or queue to read models. All
// settings come from the environment; see projector.Config.
//
// Exit codes: 0 after a clean stop (SIGTERM, SIGINT), 1 when it could not go on, 2 when the configuration is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	cfg, err := projector.LoadConfig()
	instance := telemetry.Instance()
	log := telemetry.Logger(os.Stdout, cfg.LogLevel, "projector", instance)
	if err == nil {
		telemetry.LogStart(log)
		err = projector.Run(ctx, cfg, projector.Options{Logger: log, Instance: instance})
	}
	if problems, ok := errors.AsType[settings.Problems](err); ok {
		fmt.Fprintln(os.Stderr, "projector:", problems)
		return 2
	}
	if err != nil {
		log.Error("projector failed", telemetry.KeyError, err)
		return 1
	}
	return 0
}
