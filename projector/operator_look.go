package projector

import (
	"context"
	"flag"

	"github.com/sluice-cdc/sluice/projector/internal/inspect"
	"github.com/sluice-cdc/sluice/shared/checkup"
)

func asJSON(f *flag.FlagSet, r *request) { f.BoolVar(&r.json, "json", false, "") }

func statusCommand() command {
	return command{
		name: "status", takes: "[--json]",
		says:  "what is applied, parked, waiting and dead-lettered, from MongoDB and Service Bus",
		flags: asJSON,
		do: func(ctx context.Context, d *desk, r request) error {
			status, err := d.look().Status(ctx)
			if r.json {
				if failed := writeJSON(d.out, status); failed != nil {
					return failed
				}
				return err
			}
			status.Print(d.out)
			return err
		},
	}
}

func doctorCommand() command {
	return command{
		name: "doctor", takes: "[--json]",
		says:  "check every setting and permission against the services",
		flags: asJSON,
		do: func(ctx context.Context, d *desk, r request) error {
			found := append(checkup.Findings{{Check: "settings", OK: true, Says: "all can be read and agree"}}, d.look().Doctor(ctx)...)
			if r.json {
				if err := writeJSON(d.out, found); err != nil {
					return err
				}
			} else {
				found.Print(d.out)
			}
			if !found.Healthy() {
				return errFound
			}
			return nil
		},
	}
}

func (d *desk) look() *inspect.Desk {
	return &inspect.Desk{
		Projection: d.chosen, Applier: d.applier, Database: d.mongo.Database(d.cfg.Database),
		Bus:   d.bus,
		Topic: d.cfg.Topic, Subscription: d.cfg.Subscription, Queue: d.cfg.Queue,
		LocalAuth: d.cfg.ServiceBus.ConnectionString != "",
	}
}
