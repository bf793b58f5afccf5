package projector

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

	"github.com/sluice-cdc/sluice/projector/internal/verify"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// verifyShown is how many differences are printed.
const verifyShown = 20

func verifyCommand() command {
	return command{
		Name: "verify", Takes: "[--sample N] [--wait 10s] [--hold 200000] [--json]",
		Says: "recompute the read model from the source collection and report every difference;\n" +
			"  \twith --sample of about N documents: of the source only what feeds them is read, quickly where it\n" +
			"  \thas an index on AGGREGATE_ID_PATH (on MIRROR_KEY for a mirror)",
		Flags: func(f *flag.FlagSet, r *request) {
			f.Int64Var(&r.sample, "sample", 0, "")
			f.DurationVar(&r.wait, "wait", 10*time.Second, "")
			f.Int64Var(&r.hold, "hold", 200_000, "")
			f.BoolVar(&r.json, "json", false, "")
		},
		Check: func(_ string, r *request) error {
			if r.sample < 0 {
				return fmt.Errorf("--sample %d: it is the number of documents to compare, 1 or more; without it, all are", r.sample)
			}
			if r.hold < 1 {
				return fmt.Errorf("--hold %d: it is the most documents held in memory at once, 1 or more; what is more is compared in parts", r.hold)
			}
			if r.wait < 0 {
				return fmt.Errorf("--wait %s: it is how long a difference may take to heal, such as 10s", r.wait)
			}
			return nil
		},
		Do: verifyReadModel,
	}
}

// verifyReadModel reads two databases for as long as it takes; each command of it is bounded by the driver.
func verifyReadModel(ctx context.Context, d *desk, r request) error {
	source, closeSource, err := d.source(ctx)
	if err != nil {
		return err
	}
	defer closeSource()
	v := verify.Verifier{
		Projection: d.chosen, Source: source,
		ReadModel: d.mongo.Database(d.cfg.Database, options.Database().SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())),
		Guards:    d.applier.Guards, Parked: d.applier.List,
		Sample: r.sample, Wait: r.wait, PerPass: r.hold,
	}
	report, err := v.Verify(ctx)
	if err != nil {
		return err
	}
	if r.json {
		if err := commandline.WriteJSON(d.out, report); err != nil {
			return err
		}
	} else {
		report.Print(d.out, verifyShown)
	}
	if !report.OK() {
		return commandline.ErrFound
	}
	return nil
}

// source is the watched collection. Its client is the read model's where no other one is configured.
func (d *desk) source(ctx context.Context) (s verify.Source, closeIt func(), err error) {
	var problems settings.Problems
	if d.cfg.SourceDatabase == "" {
		problems = append(problems, errors.New("SOURCE_DATABASE: is required for this command: the database of the watched collection"))
	}
	if d.cfg.SourceCollection == "" {
		problems = append(problems, errors.New("SOURCE_COLLECTION: is required for this command: the watched collection"))
	}
	if len(problems) > 0 {
		return s, nil, problems
	}
	client, closeIt := d.mongo, func() {}
	if d.cfg.SourceMongoURI != "" {
		o := options.Client().ApplyURI(d.cfg.SourceMongoURI).SetAppName("sluice-projector-verify")
		d.adjust(o)
		if client, err = mongo.Connect(o); err != nil {
			return s, nil, fmt.Errorf("open MongoDB client of the source: %w", err)
		}
		closeIt = func() { _ = mongodb.Disconnect(ctx, client, closeTimeout) } // it only read
	}
	database := client.Database(d.cfg.SourceDatabase, options.Database().SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
	return verify.Source{
		Collection:    database.Collection(d.cfg.SourceCollection),
		AggregatePath: d.cfg.AggregatePath, TypePath: d.cfg.TypePath, VersionPath: d.cfg.VersionPath,
	}, closeIt, nil
}
