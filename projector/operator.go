package projector

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/internal/operator"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Execute is like [Main] without the process: it parses args (without the program's name), loads
// the configuration, runs the command and returns an exit code of package commandline. run is
// called without a command; it logs its own errors. Wrong settings are printed to errOut, and
// without a command they are in the log on out, too.
func Execute(ctx context.Context, args []string, load func() (Config, error), o Options, out, errOut io.Writer,
	run func(context.Context, Config) error,
) int {
	program := operator.Program(o.program()) //nolint:contextcheck // a command without settings, such as check, has no context
	program.Commands = append(program.Commands, configCommand(o))
	return program.Main(args, out, errOut, func(c operator.Command, r operator.Request) error {
		config, err := load()
		switch {
		case err != nil:
			if c.Do == nil {
				telemetry.LogRefused(out, "projector", err)
			}
			return err
		case c.Do == nil:
			return run(ctx, config)
		}
		var progress *terminal.Progress
		if c.Name != "console" { // it has no end, and thus no progress
			progress = terminal.StartProgress(errOut, c.Name)
		}
		defer progress.End()
		return command(ctx, c, r, config, o, progress.Through(out), progress)
	})
}

// command does one command other than run, with the clients of a projector that does not run.
func command(ctx context.Context, c operator.Command, r operator.Request, cfg Config, o Options, out io.Writer, progress *terminal.Progress) error {
	o.Mongo = mongodb.Interactive(o.Mongo)
	cfg.Connections = 1
	if cfg.ProjectionURL != "" {
		var err error
		if o.remote, err = commandProgram(ctx, cfg, o, slices.Contains([]string{"build", "doctor", "repair", "switch", "verify"}, c.Name)); err != nil {
			return err
		}
	}
	s, err := open(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	bus, err := s.dial()
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = bus.Close(closing)
	}()
	p := cfg.operating(s)
	p.Bus, p.Out, p.Progress, p.Source.Adjust = bus, out, progress, o.Mongo
	p.Stream = func(ctx context.Context) (build.Stream, error) { return cfg.stream(ctx, o) }
	return c.Do(ctx, p, r)
}

// configCommand shows the settings of the environment. A projection that the program does not have
// is a problem of them, too.
func configCommand(o Options) operator.Command {
	list := func() []settings.Setting { return settings.List(Config{}) }
	return commandline.ConfigCommand[*operator.Projector, operator.Request](list, func() error {
		config, err := LoadConfig()
		if err != nil {
			return err
		}
		if config.ProjectionURL != "" { // only its program knows the projection
			_, err = config.programName()
			return err
		}
		_, err = choose(config, cmp.Or(o.Projections, projection.Builtin()), nil)
		return err
	})
}
