package producer

import (
	"context"
	"io"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/operator"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Main is the program behind its signals: it understands args (without the program's name), loads the configuration, does
// what was asked for and returns an exit code of package commandline. run is what happens without a command; it logs its own
// errors. Wrong settings are printed to errOut, and without a command they are in the log on out, too.
func Main(ctx context.Context, args []string, load func() ([]Config, error), o Options, out, errOut io.Writer,
	run func(context.Context, []Config) error,
) int {
	program := operator.Program()
	program.Commands = append(program.Commands, configCommand())
	return program.Main(args, out, errOut, func(c operator.Command, r operator.Request) error {
		configs, err := load()
		switch {
		case err != nil:
			if c.Do == nil {
				telemetry.LogRefused(out, "producer", err)
			}
			return err
		case c.Do == nil:
			return run(ctx, configs)
		}
		config, err := choose(configs, r.Stream)
		if err != nil {
			return err
		}
		progress := terminal.StartProgress(errOut, c.Name)
		defer progress.End()
		return command(ctx, c, r, config, o, progress.Through(out), progress)
	})
}

// command does one command other than run, with the clients of a producer that does not run.
func command(ctx context.Context, c operator.Command, r operator.Request, config Config, o Options, out io.Writer, progress *terminal.Progress) error {
	given := o.Mongo
	o.Mongo = func(m *options.ClientOptions) {
		mongodb.Interactive(m)
		if given != nil {
			given(m)
		}
	}
	shared, err := connect(ctx, []Config{config}, o)
	if err != nil {
		return err
	}
	defer shared.close(ctx)
	stream, err := config.operating(shared.streams[0], o)
	if err != nil {
		return err
	}
	stream.Out, stream.JSON, stream.Progress = out, r.JSON, progress
	return c.Do(ctx, stream, r)
}

// configCommand shows the settings that the environment gives: of the process, and of its streams.
func configCommand() operator.Command {
	list := func() []settings.Setting {
		var process Config
		_ = settings.Load(&process) // the names of the streams are wanted, whatever else is wrong
		var prefixes []string
		for _, name := range process.Streams {
			prefixes = append(prefixes, prefix(name))
		}
		return settings.List(process, prefixes...)
	}
	return commandline.ConfigCommand[*operator.Stream, operator.Request](list, func() error {
		_, err := LoadStreams()
		return err
	})
}
