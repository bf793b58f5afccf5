package world

import (
	"bytes"
	"context"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// Operated is the outcome of one operator command.
type Operated struct {
	Code     int
	Out, Err string
}

// OperateProducer runs one command of a producer of these streams.
func (w *World) OperateProducer(configs []producer.Config, args ...string) Operated {
	w.Helper()
	storage := w.Blob.Transport()
	storage.Delay = w.OperatorDelay
	o := producer.Options{
		Instance:   "desk",
		ServiceBus: BusOptions(w.BusNet),
		Blob:       BlobOptions(storage),
		Mongo:      MongoOptions(w.OperatorMongo),
		Store:      w.Store,

		Administration: w.Administration,
	}
	var out, errOut bytes.Buffer
	load := func() (_ []producer.Config, err error) {
		for _, c := range configs {
			if wrong := c.Validate(); wrong != nil {
				err = settings.Problems{wrong}
			}
		}
		return configs, err
	}
	run := func(context.Context, []producer.Config) error { w.Error("the command ran the producer"); return nil }
	code := producer.Execute(w.Context(), args, load, o, &out, &errOut, run)
	w.Logf("$ producer %q → %d\n%s%s", args, code, out.String(), errOut.String())
	return Operated{code, out.String(), errOut.String()}
}

// OperateProjector runs one command of a projector that has the settings of its source; change
// adjusts its settings.
func (w *World) OperateProjector(change func(*projector.Config, *projector.Options), args ...string) Operated {
	w.Helper()
	return w.OperateProjectorUntil(w.Context(), change, args...)
}

// OperateProjectorUntil is like OperateProjector in a process that is killed when ctx ends.
func (w *World) OperateProjectorUntil(ctx context.Context, change func(*projector.Config, *projector.Options), args ...string) Operated {
	w.Helper()
	config := w.ProjectorConfig()
	config.SourceDatabase, config.SourceCollection = sourceDatabase, sourceCollection
	config.AggregateIDPath, config.EventTypePath, config.VersionPath = "aggregateId", "type", "version"
	o := projector.Options{
		Instance:   "desk",
		ServiceBus: BusOptions(w.BusNet),
		Mongo:      MongoOptions(w.OperatorMongo),
	}
	if change != nil {
		change(&config, &o)
	}
	var out, errOut bytes.Buffer
	load := func() (projector.Config, error) {
		if joined, ok := config.Validate().(interface{ Unwrap() []error }); ok {
			return config, settings.Problems(joined.Unwrap())
		}
		return config, nil
	}
	run := func(context.Context, projector.Config) error { w.Error("the command ran the projector"); return nil }
	code := projector.Execute(ctx, args, load, o, &out, &errOut, run)
	w.Logf("$ projector %q → %d\n%s%s", args, code, out.String(), errOut.String())
	return Operated{code, out.String(), errOut.String()}
}
