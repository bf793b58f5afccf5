package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
)

const (
	// verifyShown is how many differences are printed.
	verifyShown = 20
	// verifyWait and verifyHold are the defaults of --wait and --hold.
	verifyWait = 10 * time.Second
	verifyHold = 200_000
)

func verifyCommand() Command {
	return Command{
		Name: "verify", Takes: "[--sample N] [--wait 10s] [--hold 200000] [--repair] [--json]",
		Summary: "recompute the read model from the source collection and report every difference;\n" +
			"  \twith --sample of about N documents: of the source only what feeds them is read, quickly where it\n" +
			"  \thas an index on AGGREGATE_ID_PATH (on MIRROR_KEY for a mirror)",
		Flags: func(f *flag.FlagSet, r *Request) {
			f.Int64Var(&r.sample, "sample", 0, "compare about `N` documents; without it all of them")
			f.DurationVar(&r.wait, "wait", verifyWait, "how `long` a difference may take to disappear")
			f.Int64Var(&r.inMemory, "hold", verifyHold, "`N` documents in memory at once, at most; what is more is compared in parts")
			f.BoolVar(&r.json, "json", false, "as JSON")
			f.BoolVar(&r.repair, "repair", false, "repair the aggregates whose documents differ, as the command repair does")
		},
		Check: func(_ string, r *Request) error {
			if r.sample < 0 {
				return fmt.Errorf("--sample %d: it is the number of documents to compare, 1 or more; without it, all are", r.sample)
			}
			if r.inMemory < 1 {
				return fmt.Errorf("--hold %d: it is the most documents held in memory at once, 1 or more; what is more is compared in parts", r.inMemory)
			}
			if r.repair && r.json {
				return errors.New("takes --repair or --json; repair AGGREGATE… --json repairs what verify --json has found")
			}
			if r.wait < 0 {
				return fmt.Errorf("--wait %s: it is how long a difference may take to disappear, such as 10s", r.wait)
			}
			return nil
		},
		Do: verifyReadModel,
	}
}

// compare compares the read model with its source. It reads two databases for as long as it takes;
// each command of it is bounded by the driver.
func (p *Projector) compare(ctx context.Context, r Request, source build.Source) (build.Verification, error) {
	v := build.Verifier{
		Program: p.Program, Projection: p.Projection, Source: source,
		ReadModel: p.majority(), Guards: p.Applier.Guards, Parked: p.Applier.List,
		Sample: r.sample, Wait: r.wait, PerPass: r.inMemory, Progress: p.Progress.Set,
	}
	return v.Verify(ctx)
}

func verifyReadModel(ctx context.Context, p *Projector, r Request) error {
	source, closeSource, err := p.Source.open(ctx, p.Database.Client())
	if err != nil {
		return err
	}
	defer closeSource()
	report, err := p.compare(ctx, r, source)
	if err != nil {
		return err
	}
	if r.json {
		if err := commandline.WriteJSON(p.Out, report); err != nil {
			return err
		}
	} else {
		report.Print(p.Out, verifyShown)
	}
	if r.repair && report.Differing > 0 {
		return p.repairFound(ctx, r, source, report)
	}
	if !report.OK() {
		return commandline.ErrFound
	}
	return nil
}

// Source is the watched collection, and the paths of the parts of an event in its documents.
type Source struct {
	// MongoURI is its deployment: a secret. Empty: that of the read model.
	MongoURI                             string
	Database, Collection                 string
	AggregatePath, TypePath, VersionPath string
	// Adjust, if set, adjusts the client.
	Adjust func(*options.ClientOptions)
}

// disconnectTimeout bounds the disconnect of a client that only read.
const disconnectTimeout = 10 * time.Second

// open returns the watched collection, with the read model's client if no other deployment is
// configured.
func (s Source) open(ctx context.Context, client *mongo.Client) (opened build.Source, closeIt func(), err error) {
	var problems settings.Checks
	problems.Require(s.Database != "", "SOURCE_DATABASE: is required for this command: the database of the watched collection")
	problems.Require(s.Collection != "", "SOURCE_COLLECTION: is required for this command: the watched collection")
	if err := problems.Problems(); err != nil {
		return opened, nil, err
	}
	closeIt = func() {}
	if s.MongoURI != "" {
		o := options.Client().ApplyURI(s.MongoURI).SetAppName("sluice-projector-verify")
		if s.Adjust != nil {
			s.Adjust(o)
		}
		if client, err = mongo.Connect(o); err != nil {
			return opened, nil, fmt.Errorf("open MongoDB client of the source: %w", err)
		}
		closeIt = func() { _ = mongodb.Disconnect(ctx, client, disconnectTimeout) } // it only read
	}
	database := client.Database(s.Database, options.Database().SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
	return build.Source{
		Collection:    database.Collection(s.Collection),
		AggregatePath: s.AggregatePath, TypePath: s.TypePath, VersionPath: s.VersionPath,
	}, closeIt, nil
}
