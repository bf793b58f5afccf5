package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/commandline"
)

func switchCommand() Command {
	return Command{
		Name: "switch", Takes: "NAME --to VERSION [--sample N] [--force] [--json]", Operand: true,
		Summary: "have the views that readers use show a version of the projection, after comparing it with the source as verify does;\n" +
			"  \twith the settings of that version",
		Flags: func(f *flag.FlagSet, r *Request) {
			f.IntVar(&r.version, "to", 0, "the `VERSION` to show")
			f.Int64Var(&r.sample, "sample", 0, "compare about `N` documents; without it all of them")
			f.BoolVar(&r.force, "force", false, "compare nothing")
			asJSON(f, r)
		},
		Check: func(operand string, r *Request) error {
			r.wait, r.inMemory = verifyWait, verifyHold
			if r.sample < 0 {
				return fmt.Errorf("--sample %d: it is the number of documents to compare, 1 or more; without it, all are", r.sample)
			}
			return versioned(operand, r, "--to")
		},
		Do: switchVersion,
	}
}

// versioned takes the operand and the version of a command about a version.
func versioned(operand string, r *Request, flag string) error {
	if r.name = operand; operand == "" {
		return errors.New("needs the name of the projection")
	}
	if r.version < 1 {
		return fmt.Errorf("needs %s: a version of the projection, 1 or more", flag)
	}
	return nil
}

// switched is what the command prints.
type switched struct {
	Projection string      `json:"projection"`
	Version    int         `json:"version"`
	Views      []shownView `json:"views"`
}

type shownView struct {
	View   string `json:"view"`
	Shows  string `json:"shows"`
	Before string `json:"before,omitempty"` // empty: the view is new
}

func switchVersion(ctx context.Context, p *Projector, r Request) error {
	if err := p.isVersion(r); err != nil {
		return err
	}
	all, err := build.Views(p.Projection)
	if err != nil {
		return fmt.Errorf("switch %s: %w", r.name, err)
	}
	database := p.majority()
	before, err := build.Shown(ctx, database, all)
	if err != nil {
		return err
	}
	if err := p.canBeShown(ctx, database, r); err != nil {
		return err
	}
	answer := switched{Projection: r.name, Version: r.version}
	for _, v := range all {
		if err := build.Show(ctx, database, v); err != nil {
			return err
		}
		answer.Views = append(answer.Views, shownView{View: v.Name, Shows: v.Collection, Before: before[v.Name]})
	}
	// A drop that began meanwhile sees either these views or is seen here.
	switch state, err := build.Read(ctx, database, p.Projection); {
	case err != nil:
		return err
	case state != nil && state.State == build.Dropped:
		return fmt.Errorf("version %d of %s is being dropped, and its views show it: switch to another version", r.version, r.name)
	}
	return commandline.Show(p.Out, r.json, answer)
}

// isVersion checks that the settings are those of the version that the command names.
func (p *Projector) isVersion(r Request) error {
	name, v := projection.Base(p.Projection).Name(), projection.VersionOf(p.Projection)
	if name == r.name && v == r.version {
		return nil
	}
	return fmt.Errorf("the settings are those of version %d of %s, and this is about version %d of %s: run it with the settings of that version's projector "+
		"(PROJECTION, SERVICE_BUS_SUBSCRIPTION), and with its program", v, name, r.version, r.name)
}

// majority returns the read model with read and write concern majority.
func (p *Projector) majority() *mongo.Database {
	return p.Database.Client().Database(p.Database.Name(), options.Database().SetReadConcern(readconcern.Majority()).
		SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary()))
}

// canBeShown returns why readers should not see the version; nil if they can.
func (p *Projector) canBeShown(ctx context.Context, database *mongo.Database, r Request) error {
	switch state, err := build.Read(ctx, database, p.Projection); {
	case err != nil:
		return err
	case state == nil && r.version == 1:
	case state == nil:
		return fmt.Errorf("version %d of %s has no build: run %s build first", r.version, r.name, p.Program)
	case state.State == build.Dropped:
		return fmt.Errorf("switch %s: %w", r.name, build.ErrDropped)
	case state.State != build.Done:
		return fmt.Errorf("the build of version %d of %s has not ended (%s): run %s build until it has", r.version, r.name, state.State, p.Program)
	}
	if r.force {
		return nil
	}
	if err := p.attach(ctx); err != nil {
		return fmt.Errorf("version %d of %s does not follow the source any more: %w. To show it nevertheless: --force", r.version, r.name, err)
	}
	source, closeSource, err := p.Source.open(ctx, p.Database.Client())
	if err != nil {
		return err
	}
	defer closeSource()
	report, err := p.compare(ctx, r, source)
	if err != nil {
		return err
	}
	if report.OK() {
		return nil
	}
	out := p.Out
	if r.json {
		out = io.Discard
	}
	report.Print(out, verifyShown)
	return fmt.Errorf("version %d of %s is not as the source, so nothing was switched (%s verify shows the differences). To show it nevertheless: --force", r.version, r.name, p.Program)
}

// Print implements [commandline.Show] for people.
func (s switched) Print(out io.Writer) {
	for _, v := range s.Views {
		switch v.Before {
		case "":
			fmt.Fprintf(out, "%s shows %s (a new view: grant the readers access to it)\n", v.View, v.Shows)
		case v.Shows:
			fmt.Fprintf(out, "%s shows %s, as before\n", v.View, v.Shows)
		default:
			fmt.Fprintf(out, "%s shows %s, and showed %s\n", v.View, v.Shows, v.Before)
		}
	}
}
