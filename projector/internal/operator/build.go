package operator

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// buildShown is how many aggregates that could not be built are printed.
const buildShown = 20

func buildCommand() Command {
	return Command{
		Name: "build", Takes: "[--chunk N] [--parallel N] [--rate N] [--skip-event ID,…] [--accept-failed] [--json]",
		Summary: "build the read model from the documents that the source holds, before a projector consumes the\n" +
			"  \tsubscription; run it again if it was interrupted, or for aggregates that could not be built",
		Flags: func(f *flag.FlagSet, r *Request) {
			f.Int64Var(&r.chunk, "chunk", 5000, "about `N` documents are read as of one moment")
			f.IntVar(&r.parallel, "parallel", 2, "`N` ranges are read while an earlier one is written")
			f.Int64Var(&r.rate, "rate", 0, "about `N` documents a second, to spare the source; without it as many as can be")
			skipEvents(f, r)
			f.BoolVar(&r.acceptFailed, "accept-failed", false, "end the build although aggregates could not be built; they stay parked")
			asJSON(f, r)
		},
		Check: func(_ string, r *Request) error {
			if r.chunk < 1 {
				return fmt.Errorf("--chunk %d: it is the number of documents that are read as of one moment, 1 or more", r.chunk)
			}
			if r.parallel < 1 || r.parallel > 64 {
				return fmt.Errorf("--parallel %d: it is the number of ranges that are read at once, 1 to 64", r.parallel)
			}
			if r.rate < 0 {
				return fmt.Errorf("--rate %d: it is the number of documents a second, 1 or more; without it, as many as can be", r.rate)
			}
			return nil
		},
		Do: buildReadModel,
	}
}

// skipEvents declares the flag of documents that are left out.
func skipEvents(f *flag.FlagSet, r *Request) {
	f.Func("skip-event", "the `_id`s of documents to leave out for good, with commas between them", func(ids string) error {
		r.skip = make(map[string]bool)
		for id := range strings.SplitSeq(ids, ",") {
			r.skip[id] = true
		}
		return nil
	})
}

// built is the output of the command.
type built struct {
	build.Report
	Failing []failing `json:"failing,omitempty"`

	program string
	setting string // PROJECTION
}

type failing struct {
	Aggregate   string `json:"aggregate"`
	Description string `json:"description"`
}

func buildReadModel(ctx context.Context, p *Projector, r Request) error {
	source, closeSource, err := p.Source.open(ctx, p.Database.Client())
	if err != nil {
		return err
	}
	defer closeSource()
	b, err := p.builder(ctx, r, source)
	if err != nil {
		return err
	}
	if err := build.CreateCollections(ctx, p.Database, p.Projection); err != nil {
		return err
	}
	report, err := b.Run(ctx)
	if err != nil {
		if errors.Is(err, apply.ErrForeignGuard) {
			err = fmt.Errorf("%w. A projector must not consume the subscription before the build has ended: stop it, and build another version "+
				"of the projection (PROJECTION=NAME:2), or drop the collections of this one, %s_build among them, and build it again", err, p.Projection.Name())
		}
		return err
	}
	answer := built{Report: report, program: p.Program, setting: p.Setting}
	if report.Failed > 0 {
		parked, err := p.Applier.List(ctx)
		if err != nil {
			return err
		}
		for _, a := range parked {
			if a.Reason == apply.ReasonBuild && len(answer.Failing) < buildShown {
				answer.Failing = append(answer.Failing, failing{a.Name, a.Description})
			}
		}
	}
	if err := commandline.Show(p.Out, r.json, answer); err != nil {
		return err
	}
	if report.State != build.Done {
		return commandline.ErrFound
	}
	return nil
}

// builder returns what builds or repairs the read model from a source.
func (p *Projector) builder(ctx context.Context, r Request, source build.Source) (*build.Builder, error) {
	stream, err := p.Stream(ctx)
	if err != nil {
		return nil, err
	}
	if err := build.CheckCollations(ctx, p.Database, p.Applier.Collections()); err != nil {
		return nil, fmt.Errorf("READ_MODEL_DATABASE: %w", err)
	}
	return &build.Builder{
		Projection: p.Projection, Applier: p.Applier, Source: source, Stream: stream,
		ReadModel: p.majority(),
		Reread:    p.Stream, Attach: p.attach, Entity: p.following(),
		Chunk: r.chunk, Parallel: r.parallel, Rate: r.rate, Skip: r.skip, AcceptFailed: r.acceptFailed, Progress: p.Progress.Set,
	}, nil
}

// attach opens the entity that the projector will consume: what is committed from then on arrives
// there.
func (p *Projector) attach(ctx context.Context) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	if err := p.peek(ctx, deadLetters, nil); err != nil {
		return fmt.Errorf("a read model is built beside a subscription of its own, which keeps the events meanwhile: %w", err)
	}
	return nil
}

const (
	// fullAt is how full a topic may be while a build goes on, in percent. A full one stops the
	// producer.
	fullAt = 80
	// askAgain is the time until an administration that did not answer is asked again.
	askAgain = 10 * time.Minute
)

// following returns a [build.Builder.Entity]. How full a topic is, and when a subscription was
// created, is known only to identities that may read the settings of the namespace.
func (p *Projector) following() func(context.Context) (time.Time, error) {
	var silent time.Time
	return func(ctx context.Context) (created time.Time, err error) {
		if time.Now().Before(silent) {
			return created, nil
		}
		ctx, cancel := p.bounded(ctx)
		defer cancel()
		client, err := p.Administer()
		var s azure.Storage
		if err == nil {
			s, err = p.Entity.Storage(ctx, client)
		}
		if err != nil {
			silent = time.Now().Add(askAgain)
			return created, nil //nolint:nilerr // it is not known
		}
		if s.Most > 0 && s.Bytes*100 >= s.Most*fullAt {
			holder := cmp.Or(p.Entity.Queue, p.Entity.Topic)
			return created, fmt.Errorf("%[1]s is %[2]d %% full (%[3]d of %[4]d MB), and a full one stops the producer. The events wait in %[5]s until the build has ended: "+
				"delete that, and build another version; or let %[1]s grow, and run the command again", holder, s.Bytes*100/s.Most, s.Bytes>>20, s.Most>>20, p.Entity)
		}
		return s.Created, nil
	}
}

// Print implements [commandline.Show] for people.
func (b built) Print(out io.Writer) {
	took := b.Took.Round(time.Second)
	if b.Took < time.Second {
		took = b.Took.Round(time.Millisecond)
	}
	fmt.Fprintf(out, "%s from %s: %s of %s built in %s\n", b.Projection, b.Source,
		commandline.Count(int(b.Events), "event"), commandline.Count(int(b.Aggregates-b.Failed), "aggregate"), took)
	if b.Failed == 0 {
		fmt.Fprintf(out, "Start its projector now: PROJECTION=%s\n", b.setting)
		return
	}
	fmt.Fprintf(out, "%s could not be built:\n", commandline.Count(int(b.Failed), "aggregate"))
	for _, f := range b.Failing {
		fmt.Fprintf(out, "  %s: %s\n", terminal.Printable(f.Aggregate), terminal.Printable(f.Description))
	}
	if b.State == build.Done {
		fmt.Fprintln(out, "They stay parked; the others can be projected.")
		return
	}
	fmt.Fprintf(out, "Correct the projection and run %s build again; or leave documents out with --skip-event; or leave these aggregates parked with --accept-failed.\n", b.program)
}
