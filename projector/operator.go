package projector

import (
	"context"
	"flag"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// command is one thing the program does. Without a Do it needs no desk: run, and help.
type command = commandline.Command[*desk, request]

// request is a command line that has been understood.
type request struct {
	operand string
	json    bool
	sample  int64         // of verify
	hold    int64         // of verify
	wait    time.Duration // for a session, or for a difference to heal
	all     bool
	yes     bool
}

// program is what the program can do.
func program() commandline.Program[*desk, request] {
	all := []command{{Name: "run", Says: "receive and apply (also without a command)"}, statusCommand()}
	all = append(all, parkedCommands()...)
	return commandline.Program[*desk, request]{Name: "projector", Commands: append(all, verifyCommand(), doctorCommand())}
}

// Execute is [Main] without the process: it understands args (without the program's name), loads the configuration, does
// what was asked for and returns an exit code of package commandline. run is what happens without a command; it tells of its
// errors itself, but for those of a setting.
func Execute(ctx context.Context, args []string, load func() (Config, error), o Options, out, errOut io.Writer,
	run func(context.Context, Config) error,
) int {
	return program().Main(args, out, errOut, func(c command, r request) error {
		config, err := load()
		switch {
		case err != nil:
			return err
		case c.Do == nil:
			return run(ctx, config)
		}
		return operate(ctx, c, r, config, o, out)
	})
}

// desk is what a command works with: the clients of a projector that does not run.
type desk struct {
	*service
	bus    *azservicebus.Client
	out    io.Writer
	adjust func(*options.ClientOptions) // of every MongoDB client
}

// operate does one command other than run.
func operate(ctx context.Context, c command, r request, cfg Config, o Options, out io.Writer) error {
	given := o.Mongo
	o.Mongo = func(m *options.ClientOptions) {
		mongodb.Interactive(m)
		if given != nil {
			given(m)
		}
	}
	cfg.Connections = 1
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
	return c.Do(ctx, &desk{service: s, bus: bus, out: out, adjust: o.Mongo}, r)
}

func asJSON(f *flag.FlagSet, r *request) { f.BoolVar(&r.json, "json", false, "") }
