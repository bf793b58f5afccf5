package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/retry"
)

func dropCommand() Command {
	return Command{
		Name: "drop", Takes: "NAME --version VERSION [--subscription-deleted] [--yes] [--json]", Operand: true,
		Summary: "drop the collections of a version of the projection that no reader uses and whose subscription is deleted;\n" +
			"  \twith the settings of that version. Without --yes it shows them",
		Flags: func(f *flag.FlagSet, r *Request) {
			f.IntVar(&r.version, "version", 0, "the `VERSION` to drop")
			f.BoolVar(&r.unsubscribed, "subscription-deleted", false, "the subscription is deleted, if this identity may not know")
			f.BoolVar(&r.yes, "yes", false, "drop for good")
			asJSON(f, r)
		},
		Check: func(operand string, r *Request) error { return versioned(operand, r, "--version") },
		Do:    dropVersion,
	}
}

// dropped is what the command prints.
type dropped struct {
	Projection  string              `json:"projection"`
	Version     int                 `json:"version"`
	Collections []droppedCollection `json:"collections"`
	Dropped     bool                `json:"dropped"`

	program string
}

type droppedCollection struct {
	Name      string `json:"name"`
	Documents int64  `json:"documents"` // about so many
}

func dropVersion(ctx context.Context, p *Projector, r Request) error {
	if err := p.isVersion(r); err != nil {
		return err
	}
	if _, declared := projection.Collections(p.Projection); !declared {
		return fmt.Errorf("drop %s: the projection does not declare its collections, so they are not known: drop them in MongoDB", r.name)
	}
	database := p.majority()
	if err := p.unused(ctx, database, r); err != nil {
		return err
	}
	if err := p.unsubscribed(ctx, r); err != nil {
		return err
	}
	names, err := existing(ctx, database, append(p.Applier.Collections(), apply.WatchCollection(p.Projection), apply.ParkedCollection(p.Projection)))
	if err != nil {
		return err
	}
	answer := dropped{Projection: r.name, Version: r.version, program: p.Program}
	for _, name := range names {
		n, err := database.Collection(name).EstimatedDocumentCount(ctx)
		if err != nil {
			return fmt.Errorf("count %s: %w", name, err)
		}
		answer.Collections = append(answer.Collections, droppedCollection{name, n})
	}
	if !r.yes {
		return errors.Join(commandline.Show(p.Out, r.json, answer), commandline.ErrFound)
	}
	undo, err := build.Drop(ctx, database, p.Projection)
	if err != nil {
		return err
	}
	// A switch that began meanwhile either sees the record or is seen here.
	if err := p.unused(ctx, database, r); err != nil {
		return errors.Join(err, undo(ctx))
	}
	p.Progress.Set("wait for its projectors to stop", 0, 0)
	if err := retry.Sleep(ctx, p.Stops); err != nil {
		return fmt.Errorf("drop %s: %w", r.name, err)
	}
	for _, name := range names {
		if err := database.Collection(name).Drop(ctx); err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
	}
	again, err := existing(ctx, database, names)
	if err != nil {
		return err
	}
	if len(again) > 0 {
		return fmt.Errorf("%v was created again: a projector of version %d still runs; stop it, and run the command again", again, r.version)
	}
	answer.Dropped = true
	return commandline.Show(p.Out, r.json, answer)
}

// unused returns an error if a view shows the version.
func (p *Projector) unused(ctx context.Context, database *mongo.Database, r Request) error {
	all, err := build.Views(p.Projection)
	if err != nil {
		return fmt.Errorf("drop %s: %w", r.name, err)
	}
	shown, err := build.Shown(ctx, database, all)
	if err != nil {
		return err
	}
	for _, v := range all {
		if shown[v.Name] == v.Collection {
			return fmt.Errorf("readers use version %d of %s: the view %s shows %s. Switch to another version first: %s switch %s --to VERSION",
				r.version, r.name, v.Name, v.Collection, p.Program, r.name)
		}
	}
	return nil
}

// unsubscribed returns an error unless the version's subscription is known not to exist. Service
// Bus refuses an identity whose role was on the subscription alone, once that is deleted.
func (p *Projector) unsubscribed(ctx context.Context, r Request) error {
	err := p.attach(ctx)
	refusal, _ := errors.AsType[*azservicebus.Error](err)
	switch {
	case err == nil:
		return fmt.Errorf("%s exists, and without a reader it fills its topic: delete it first, and the version's app", p.Entity)
	case refusal != nil && refusal.Code == azservicebus.CodeNotFound:
		return nil
	case refusal != nil && refusal.Code == azservicebus.CodeUnauthorizedAccess:
		if r.unsubscribed {
			return nil
		}
		return fmt.Errorf("whether %s is deleted is not known, because this identity may not ask: look it up, and repeat the command with --subscription-deleted: %w", p.Entity, err)
	}
	return fmt.Errorf("whether %s is deleted is not known: %w", p.Entity, err)
}

// existing returns those of the collections that exist.
func existing(ctx context.Context, database *mongo.Database, names []string) ([]string, error) {
	found, err := database.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
	if err != nil {
		return nil, fmt.Errorf("list collections of %s: %w", database.Name(), err)
	}
	slices.Sort(found)
	return found, nil
}

// Print implements [commandline.Show] for people.
func (d dropped) Print(out io.Writer) {
	verb := "would drop"
	if d.Dropped {
		verb = "dropped"
	}
	for _, c := range d.Collections {
		fmt.Fprintf(out, "%s %s (about %s)\n", verb, c.Name, commandline.Count(c.Documents, "document"))
	}
	switch {
	case !d.Dropped:
		fmt.Fprintf(out, "Nothing is dropped yet. To go on: %s drop %s --version %d --yes\n", d.program, d.Projection, d.Version)
	case len(d.Collections) == 0:
		fmt.Fprintf(out, "version %d of %s has no collections any more\n", d.Version, d.Projection)
	}
}
