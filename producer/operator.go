package producer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/operate"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// command is one thing the program does. Without a Do it needs no desk: run, and help.
type command = commandline.Command[*desk, request]

// desk is what a command works with: a stream that is attend after.
type desk struct {
	*operate.Stream
	out io.Writer
}

// request is a command line that has been understood.
type request struct {
	stream  string // of several
	json    bool
	change  operate.Change
	token   string
	to      string // as it was written
	instant time.Time
	key     envelope.SessionKey
	drained bool
}

const notes = `--force breaks the lease of a producer that leads. --forward lets the checkpoint skip changes.
--stream NAME says which, where STREAMS names several; every command but run needs it then.
`

// program is what the program can do.
func program() commandline.Program[*desk, request] {
	all := []command{{Name: "run", Says: "take part in the election and publish (also without a command)"}, statusCommand()}
	all = append(all, tokenCommands()...)
	all = append(all, sessionKeyCommand(), command{
		Name: "lease break", Says: "free the lease, whoever holds it",
		Do: func(ctx context.Context, d *desk, _ request) error { return d.BreakLease(ctx, d.out) },
	}, doctorCommand())
	return commandline.Program[*desk, request]{
		Name: "producer", Commands: all, Notes: notes,
		Flags: func(f *flag.FlagSet, r *request) { f.StringVar(&r.stream, "stream", "", "") },
	}
}

func asJSON(f *flag.FlagSet, r *request) { f.BoolVar(&r.json, "json", false, "") }

func forced(f *flag.FlagSet, r *request) { f.BoolVar(&r.change.Force, "force", false, "") }

func statusCommand() command {
	return command{
		Name: "status", Takes: "[--json]", Says: "leader, epoch, position, lag, from the checkpoint blob and MongoDB alone",
		Flags: asJSON,
		Do: func(ctx context.Context, d *desk, r request) error {
			status, err := d.Status(ctx)
			if status.Stream == "" {
				return err
			}
			return errors.Join(commandline.Show(d.out, r.json, status), err)
		},
	}
}

func tokenCommands() []command {
	return []command{
		{
			Name: "token show", Says: "the checkpoint's resume token",
			Do: func(ctx context.Context, d *desk, _ request) error { return d.TokenShow(ctx, d.out) },
		},
		{
			Name: "token set", Takes: "TOKEN [--force] [--forward]",
			Says:    "move the checkpoint to a token: its _data, or the whole document as JSON",
			Operand: true,
			Flags: func(f *flag.FlagSet, r *request) {
				forced(f, r)
				f.BoolVar(&r.change.Forward, "forward", false, "")
			},
			Check: func(operand string, r *request) error {
				if r.token = operand; operand == "" {
					return errors.New("needs the token: its _data, or the whole document as JSON in quotes")
				}
				return nil
			},
			Do: func(ctx context.Context, d *desk, r request) error { return d.TokenSet(ctx, r.token, r.change, d.out) },
		},
		{
			Name: "token rewind", Takes: "--to TIME [--force]",
			Says: "move the checkpoint back to a time (RFC 3339, such as 2026-01-31T15:04:05Z)",
			Flags: func(f *flag.FlagSet, r *request) {
				forced(f, r)
				f.StringVar(&r.to, "to", "", "")
			},
			Check: func(_ string, r *request) (err error) {
				if r.instant, err = time.Parse(time.RFC3339, r.to); err != nil {
					return fmt.Errorf("needs --to with a time of RFC 3339, such as 2026-01-31T15:04:05Z (it is %q)", r.to)
				}
				return nil
			},
			Do: func(ctx context.Context, d *desk, r request) error {
				return d.TokenRewind(ctx, r.instant, r.change, d.out)
			},
		},
		{
			Name: "token renumber", Says: "accept a changed PIPELINE or collection where positions are counted",
			Do: func(ctx context.Context, d *desk, _ request) error { return d.TokenRenumber(ctx, d.out) },
		},
	}
}

func sessionKeyCommand() command {
	return command{
		Name: "session-key", Takes: "KEY --drained",
		Says:    "publish by another SESSION_KEY from now on, when nothing of the old one is left anywhere",
		Operand: true,
		Flags:   func(f *flag.FlagSet, r *request) { f.BoolVar(&r.drained, "drained", false, "") },
		Check: func(operand string, r *request) error {
			if operand == "" {
				return errors.New("needs the new SESSION_KEY: aggregate, or bucket:N")
			}
			if err := r.key.UnmarshalText([]byte(operand)); err != nil {
				return fmt.Errorf("KEY: %w", err)
			}
			return nil
		},
		Do: func(ctx context.Context, d *desk, r request) error {
			return d.SetSessionKey(ctx, r.key, r.drained, d.out)
		},
	}
}

func doctorCommand() command {
	return command{
		Name: "doctor", Takes: "[--json]", Says: "check every setting and permission against the services",
		Flags: asJSON,
		Do: func(ctx context.Context, d *desk, r request) error {
			return commandline.Diagnose(d.out, r.json, d.Doctor(ctx))
		},
	}
}

// Main is the program behind its signals: it understands args (without the program's name), loads the configuration, does
// what was asked for and returns an exit code of package commandline. run is what happens without a command; it tells of its
// errors itself, but for those of a setting.
func Main(ctx context.Context, args []string, load func() ([]Config, error), o Options, out, errOut io.Writer,
	run func(context.Context, []Config) error,
) int {
	return program().Main(args, out, errOut, func(c command, r request) error {
		configs, err := load()
		switch {
		case err != nil:
			return err
		case c.Do == nil:
			return run(ctx, configs)
		}
		config, err := choose(configs, r.stream)
		if err != nil {
			return err
		}
		return attend(ctx, c, r, config, o, out)
	})
}

// attend does one command other than run.
func attend(ctx context.Context, c command, r request, config Config, o Options, out io.Writer) error {
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
	return c.Do(ctx, &desk{Stream: stream, out: out}, r)
}

func (c *Config) operating(clients *clients, o Options) (*operate.Stream, error) {
	reading := c.reading(0)
	settings, err := reading.Settings(clients.collection)
	if err != nil {
		return nil, err
	}
	instance := o.Instance
	if instance == "" {
		instance = telemetry.Instance()
	}
	stream := &operate.Stream{
		Name:       c.Stream,
		Container:  clients.blob.ServiceClient().NewContainerClient(c.Container),
		Collection: clients.collection,
		Dial: func() (*azservicebus.Client, error) {
			credential := o.Credential
			if credential == nil && c.ServiceBus.ConnectionString == "" {
				var err error
				if credential, err = azure.Credential(); err != nil {
					return nil, err
				}
			}
			return c.ServiceBus.Client(credential, busOptions(o.ServiceBus))
		},
		Entity:        c.entity(),
		LocalAuth:     c.ServiceBus.ConnectionString != "",
		Operator:      "operator@" + strings.TrimSpace(instance),
		LeaseDuration: c.LeaseDuration,
		FullDocument:  fullDocument(c.FullDocument),
		BeforeChange:  fullDocument(c.BeforeChange),
		Pipeline:      reading.Pipeline,
		Settings:      settings,
		Unstable:      reading.Unstable(),
	}
	if c.OnOversize == "claimcheck" {
		stream.Claims = clients.blob.ServiceClient().NewContainerClient(c.ClaimContainer)
	}
	return stream, nil
}
