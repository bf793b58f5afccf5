package producer

import (
	"context"
	"io"

	"github.com/sluice-cdc/sluice/producer/internal/operator"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Execute is like [Main] without the process: it parses args (without the program's name), loads
// the configuration, runs the command and returns an exit code of package commandline. Without a
// command it calls run, which logs its own errors. Wrong settings are printed to errOut and,
// without a command, logged to out as well.
func Execute(ctx context.Context, args []string, load func() ([]Config, error), opts Options, out, errOut io.Writer,
	run func(context.Context, []Config) error,
) int {
	program := operator.Program()
	program.Commands = append(program.Commands, configCommand())
	return program.Main(args, out, errOut, func(c operator.Command, r operator.Request) error {
		cfgs, err := load()
		switch {
		case err != nil:
			if c.Do == nil {
				telemetry.LogRefused(out, "producer", err)
			}
			return err
		case c.Do == nil:
			return run(ctx, cfgs)
		}
		cfg, err := chooseStream(cfgs, r.Stream)
		if err != nil {
			return err
		}
		var progress *terminal.Progress
		if c.Name != "console" { // it has no end, and thus no progress
			progress = terminal.StartProgress(errOut, c.Name)
		}
		defer progress.End()
		return command(ctx, c, r, cfg, opts, progress.Through(out), progress)
	})
}

// command runs one command other than run, with the clients of a producer that does not run.
func command(ctx context.Context, c operator.Command, r operator.Request, cfg Config, opts Options, out io.Writer, progress *terminal.Progress) error {
	opts.Mongo = mongodb.Interactive(opts.Mongo)
	shared, err := openClients(ctx, []Config{cfg}, opts)
	if err != nil {
		return err
	}
	defer shared.close(ctx)
	if open := shared.streams[0].openMongo; open != nil {
		if err := open(); err != nil {
			return err
		}
	}
	stream, err := cfg.operatorStream(shared.streams[0], opts)
	if err != nil {
		return err
	}
	stream.Out, stream.JSON, stream.Progress = out, r.JSON, progress
	return c.Do(ctx, stream, r)
}

// configCommand returns the command that shows the settings of the process and of its streams, as
// read from the environment.
func configCommand() operator.Command {
	list := func() []settings.Setting {
		var process Config
		_ = settings.Load(&process) // only the names of the streams are needed
		var prefixes []string
		for _, name := range process.Streams {
			prefixes = append(prefixes, variablePrefix(name))
		}
		return settings.List(process, prefixes...)
	}
	return commandline.ConfigCommand[*operator.Stream, operator.Request](list, func() error {
		_, err := loadStreams()
		return err
	})
}
