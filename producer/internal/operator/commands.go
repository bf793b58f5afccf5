package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Command is one command of the program. Commands without Do (run and help) need no [Stream].
type Command = commandline.Command[*Stream, Request]

// Request is a parsed command line.
type Request struct {
	// Stream names one of several streams.
	Stream string
	// JSON selects the output format.
	JSON   bool
	change Change
	token  string
	// container is the destination of a copy.
	container string
	to        string // as given on the command line
	applied   bool
	instant   time.Time
	key       envelope.SessionKey
	drained   bool
	snapshot  SnapshotOptions
	packs     PacksOptions
	ids       string // as given on the command line
	yes       bool
	repeats   bool
	console   console.Options
}

const notes = `--reapply publishes again what was published with former settings: read models that have it apply it a second time.
--force breaks the lease of a producer that leads. --forward lets the checkpoint skip changes.
--stream NAME selects the stream if STREAMS names several; every command but run needs it then. --json has every command but run print JSON.
`

// Program returns the commands of the program.
func Program() commandline.Program[*Stream, Request] {
	all := []Command{{Name: "run", Summary: "join the election and publish (also without a command)"}, statusCommand(), consoleCommand()}
	all = append(all, tokenCommands()...)
	all = append(all, snapshotCommands()...)
	all = append(all, packsCommands()...)
	all = append(all, sessionKeyCommand(), readingCommand(), Command{
		Name: "lease break", Summary: "break the lease of any holder",
		Do: func(ctx context.Context, s *Stream, _ Request) error { return s.BreakLease(ctx) },
	}, doctorCommand())
	return commandline.Program[*Stream, Request]{
		Name: "producer", Commands: all, Notes: notes,
		Flags: func(f *flag.FlagSet, r *Request) {
			f.StringVar(&r.Stream, "stream", "", "the `NAME` of a stream, if STREAMS names several")
			f.BoolVar(&r.JSON, "json", false, "as JSON")
		},
	}
}

func forceFlag(f *flag.FlagSet, r *Request) {
	f.BoolVar(&r.change.Force, "force", false, "break the lease of a producer that leads")
}

func reapplyFlag(f *flag.FlagSet, r *Request) {
	f.BoolVar(&r.change.Reapply, "reapply", false, "publish again what was published with former settings: read models that have it apply it a second time")
}

// parseTime parses the time of --to.
func (r *Request) parseTime() (err error) {
	if r.instant, err = time.Parse(time.RFC3339, r.to); err != nil {
		return fmt.Errorf("needs --to with a time of RFC 3339, such as 2026-01-31T15:04:05Z (it is %q)", r.to)
	}
	return nil
}

func statusCommand() Command {
	return Command{
		Name: "status", Summary: "leader, epoch, position, lag and last failure, from Blob storage and MongoDB alone; exits with 1 if there is no leader, or the stream is stopped or has no position yet",
		Do: func(ctx context.Context, s *Stream, r Request) error {
			status, err := s.Status(ctx)
			if status.Stream == "" {
				return err
			}
			err = errors.Join(commandline.Show(s.Out, r.JSON, status), err)
			if err == nil && !status.Well() {
				return commandline.ErrFound
			}
			return err
		},
	}
}

func tokenCommands() []Command {
	return []Command{
		{
			Name: "token show", Summary: "the checkpoint's resume token",
			Do: func(ctx context.Context, s *Stream, _ Request) error { return s.TokenShow(ctx) },
		},
		{
			Name: "token set", Takes: "TOKEN [--force] [--forward] [--reapply]",
			Summary: "move the checkpoint to a token: its _data, or the whole document as JSON",
			Operand: true,
			Flags: func(f *flag.FlagSet, r *Request) {
				forceFlag(f, r)
				f.BoolVar(&r.change.Forward, "forward", false, "let the checkpoint skip changes: they are never published")
				reapplyFlag(f, r)
			},
			Check: func(operand string, r *Request) error {
				if r.token = operand; operand == "" {
					return errors.New("needs the token: its _data, or the whole document as JSON in quotes")
				}
				return nil
			},
			Do: func(ctx context.Context, s *Stream, r Request) error { return s.TokenSet(ctx, r.token, r.change) },
		},
		{
			Name: "token rewind", Takes: "--to TIME [--force] [--reapply]",
			Summary: "move the checkpoint back to a time (RFC 3339, such as 2026-01-31T15:04:05Z)",
			Flags: func(f *flag.FlagSet, r *Request) {
				forceFlag(f, r)
				reapplyFlag(f, r)
				f.StringVar(&r.to, "to", "", "the `TIME`, in RFC 3339")
			},
			Check: func(_ string, r *Request) error { return r.parseTime() },
			Do: func(ctx context.Context, s *Stream, r Request) error {
				return s.TokenRewind(ctx, r.instant, r.change)
			},
		},
		{
			Name: "token copy", Takes: "--container NAME",
			Summary: "copy the checkpoint into another container; a leader continues meanwhile",
			Flags: func(f *flag.FlagSet, r *Request) {
				f.StringVar(&r.container, "container", "", "the container's `NAME`")
			},
			Check: func(_ string, r *Request) error {
				if r.container == "" {
					return errors.New("needs --container with the name of an existing container")
				}
				return nil
			},
			Do: func(ctx context.Context, s *Stream, r Request) error { return s.TokenCopy(ctx, r.container) },
		},
		{
			Name: "token move", Takes: "--to STORE [--force]",
			Summary: "move the checkpoint into another store, with its own settings: blob, mongodb, or one that the program has",
			Flags: func(f *flag.FlagSet, r *Request) {
				forceFlag(f, r)
				f.StringVar(&r.to, "to", "", "the `STORE`, as in CHECKPOINT_STORE")
			},
			Check: func(_ string, r *Request) error {
				if r.to == "" {
					return errors.New("needs --to with the name of the store, as in CHECKPOINT_STORE")
				}
				return nil
			},
			Do: func(ctx context.Context, s *Stream, r Request) error { return s.TokenMove(ctx, r.to, r.change.Force) },
		},
		{
			Name: "token restore", Takes: "[COPY] [--container NAME] --to TIME | --applied [--reapply]",
			Summary: "recreate a lost checkpoint, from the newest copy in a container or the named one, or from a time without a copy",
			Operand: true,
			Flags: func(f *flag.FlagSet, r *Request) {
				f.StringVar(&r.container, "container", "", "the container `NAME` with the copies; without it the present settings are used")
				f.StringVar(&r.to, "to", "", "publish again from this `TIME` (RFC 3339), before the copy's time and the oldest change not applied")
				f.BoolVar(&r.applied, "applied", false, "confirm that everything published before the copy is applied, or still waits in Service Bus")
				reapplyFlag(f, r)
			},
			Check: func(operand string, r *Request) error {
				r.token = operand
				switch {
				case r.container == "" && (operand != "" || r.to == ""):
					return errors.New("needs --container with the name of the container that holds the copies, or --to with a time alone")
				case r.to == "":
					return nil
				case r.applied:
					return errors.New("--to and --applied exclude each other")
				}
				return r.parseTime()
			},
			Do: func(ctx context.Context, s *Stream, r Request) error {
				return s.TokenRestore(ctx, RestoreOptions{Container: r.container, Copy: r.token, To: r.instant, Applied: r.applied, Reapply: r.change.Reapply})
			},
		},
		{
			Name: "token renumber", Summary: "accept a changed PIPELINE or collection if positions are counted",
			Do: func(ctx context.Context, s *Stream, _ Request) error { return s.TokenRenumber(ctx) },
		},
	}
}

func sessionKeyCommand() Command {
	return Command{
		Name: "session-key", Takes: "KEY --drained",
		Summary: "publish with another SESSION_KEY from now on, when nothing of the old one is left anywhere",
		Operand: true,
		Flags: func(f *flag.FlagSet, r *Request) {
			f.BoolVar(&r.drained, "drained", false, "confirm that no message of the old key is left anywhere")
		},
		Check: func(operand string, r *Request) error {
			if operand == "" {
				return errors.New("needs the new SESSION_KEY: aggregate, or bucket:N")
			}
			if err := r.key.UnmarshalText([]byte(operand)); err != nil {
				return fmt.Errorf("KEY: %w", err)
			}
			return nil
		},
		Do: func(ctx context.Context, s *Stream, r Request) error {
			return s.SetSessionKey(ctx, r.key, r.drained)
		},
	}
}

func readingCommand() Command {
	return Command{
		Name: "reading", Takes: "[--drained]",
		Summary: "accept a changed AGGREGATE_ID_PATH, VERSION_PATH, PIPELINE or ON_UNKNOWN_AGGREGATE, or another collection, cluster or entity",
		Flags: func(f *flag.FlagSet, r *Request) {
			f.BoolVar(&r.drained, "drained", false, "confirm that no message of the former settings is left anywhere")
		},
		Do: func(ctx context.Context, s *Stream, r Request) error { return s.AcceptFingerprint(ctx, r.drained) },
	}
}

func doctorCommand() Command {
	return Command{
		Name: "doctor", Summary: "check every setting and permission against the services",
		Do: func(ctx context.Context, s *Stream, r Request) error {
			return commandline.Diagnose(s.Out, r.JSON, s.Doctor(ctx))
		},
	}
}
