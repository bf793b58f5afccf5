package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

func repairCommand(program string) Command {
	return Command{
		Name: "repair", Takes: "AGGREGATE… [--skip-event ID,…] [--wait 1m] [--json]", Operand: true,
		Summary: "replace what the read model has of an aggregate by what the source holds, beside running projectors, and end its\n" +
			"  \tparking; for projections of one document for each aggregate, mirrors by _id, and what could not be built",
		More: func(others []string, r *Request) { r.others = others },
		Flags: func(f *flag.FlagSet, r *Request) {
			skipEvents(f, r)
			f.DurationVar(&r.wait, "wait", time.Minute, "how `long` to wait for the session, while a projector holds it")
			asJSON(f, r)
		},
		Check: func(operand string, r *Request) error {
			if r.aggregate = operand; operand == "" || slices.Contains(r.others, "") {
				return fmt.Errorf("needs the aggregates; `%[1]s parked list` shows those that are parked, and `%[1]s verify --repair` finds those that are wrong", program)
			}
			return settings.AtLeast("--wait", r.wait, 0)
		},
		Do: func(ctx context.Context, p *Projector, r Request) error {
			source, closeSource, err := p.Source.open(ctx, p.Database.Client())
			if err != nil {
				return err
			}
			defer closeSource()
			return p.repair(ctx, r, source, append([]string{r.aggregate}, r.others...), false)
		},
	}
}

// repair replaces the effects of aggregates with what the source contains. Those that an operator
// names must exist; those that verify has found may be documents that nothing in the source
// creates.
func (p *Projector) repair(ctx context.Context, r Request, source build.Source, aggregates []string, found bool) error {
	b, err := p.builder(ctx, r, source)
	if err != nil {
		return err
	}
	repairer, err := b.Repairer(ctx)
	if err != nil {
		return err
	}
	slices.Sort(aggregates)
	aggregates = slices.Compact(aggregates)
	for _, name := range aggregates {
		if err := p.repairable(ctx, repairer, name, found); err != nil {
			return fmt.Errorf("%s: %w; nothing was done", terminal.Printable(name), err)
		}
	}
	return p.replay(ctx, r, aggregates, nil, nil, repairer.Repair)
}

// repairable returns why an aggregate cannot be repaired, before it is parked for that.
func (p *Projector) repairable(ctx context.Context, repairer *build.Repairer, name string, found bool) error {
	a, err := p.Applier.Parked(ctx, name)
	switch {
	case errors.Is(err, apply.ErrNotParked):
	case err != nil:
		return err
	case a.Reason == apply.ReasonBuild && a.Position == "":
		return nil // it has no effects yet
	}
	if err := p.replaceable(); err != nil {
		return err
	}
	if found || err == nil || a.Guard.Position != "" {
		return nil
	}
	if holds, err := repairer.Holds(ctx, name); err != nil || holds {
		return err
	}
	return errors.New("there is no such aggregate: neither the read model nor the source has anything of it")
}

// replaceable returns why no effects of the projection can be replaced; nil if they can be.
func (p *Projector) replaceable() error {
	_, one := p.Projection.(projection.OneDocument)
	if _, mirror := projection.CopiesByID(p.Projection); !one && !mirror {
		return apply.ErrNotReplaceable
	}
	return nil
}

// repairFound repairs the aggregates of the documents that verify found to differ.
func (p *Projector) repairFound(ctx context.Context, r Request, source build.Source, report build.Verification) error {
	if err := p.replaceable(); err != nil {
		return err
	}
	var aggregates []string
	for _, f := range report.Findings {
		if name, ok := f.Aggregate(); ok {
			aggregates = append(aggregates, name)
		}
	}
	if err := p.repair(ctx, r, source, aggregates, true); err != nil {
		return err
	}
	if more := report.Differing + report.Changing - int64(len(report.Findings)); more > 0 {
		return fmt.Errorf("%s more: run the command again", commandline.Count(int(more), "document"))
	}
	return nil
}
