package projector

import (
	"context"
	"errors"

	"github.com/sluice-cdc/sluice/projector/internal/inspect"
	"github.com/sluice-cdc/sluice/shared/commandline"
)

func statusCommand() command {
	return command{
		Name: "status", Takes: "[--json]",
		Says:  "what is applied, parked, waiting and dead-lettered, from MongoDB and Service Bus",
		Flags: asJSON,
		Do: func(ctx context.Context, d *desk, r request) error {
			status, err := d.look().Status(ctx)
			return errors.Join(commandline.Show(d.out, r.json, status), err)
		},
	}
}

func doctorCommand() command {
	return command{
		Name: "doctor", Takes: "[--json]",
		Says:  "check every setting and permission against the services",
		Flags: asJSON,
		Do: func(ctx context.Context, d *desk, r request) error {
			return commandline.Diagnose(d.out, r.json, d.look().Doctor(ctx))
		},
	}
}

func (d *desk) look() *inspect.Desk {
	return &inspect.Desk{
		Projection: d.chosen, Applier: d.applier, Database: d.mongo.Database(d.cfg.Database),
		Bus: d.bus, Entity: d.cfg.entity(),
		LocalAuth: d.cfg.ServiceBus.ConnectionString != "",
	}
}
