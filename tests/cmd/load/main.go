// Command load puts a load on a running pipeline, here or in Azure (scripts/loadtest.sh), and
// reports throughput, latency, the usage of Service Bus, and whether the read model is right. It
// knows only the two ends of the pipeline: MONGODB_URI, MONGODB_DATABASE and MONGODB_COLLECTION
// name the watched collection; READ_MODEL_DATABASE names the database of the read models, which are
// in READ_MODEL_MONGODB_URI, or in the same deployment.
//
// Exit codes: 0 everything is visible, once; 1 it is not, or the test failed; 2 wrong usage.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/shared/answer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := answer.Kept(ctx, "load", os.Stdout, os.Stderr, func(out, errOut io.Writer) int {
		return load(ctx, os.Args[1:], os.Getenv, out, errOut)
	})
	stop()
	os.Exit(code)
}

func load(ctx context.Context, args []string, getenv func(string) string, out, errOut io.Writer) int {
	var l Load
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Float64Var(&l.Rate, "rate", 100, "events a second; 0: as fast as the source takes them")
	flags.IntVar(&l.Aggregates, "aggregates", 1000, "aggregates that change in turn")
	flags.IntVar(&l.Size, "size", 500, "bytes of data in each event")
	minutes := flags.Float64("minutes", 1, "how long events are inserted")
	asJSON := flags.Bool("json", false, "the report as one line of JSON")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0 || l.Rate < 0 || l.Aggregates < 1 || l.Size < 0 || *minutes <= 0:
		fmt.Fprintln(errOut, "load: --rate and --size must not be negative, --aggregates and --minutes must be positive, and there are no other words")
		return 2
	}
	l.For, l.Patience = time.Duration(*minutes*float64(time.Minute)), 2*time.Minute
	settings := map[string]string{}
	for _, name := range []string{"MONGODB_URI", "MONGODB_DATABASE", "MONGODB_COLLECTION", "READ_MODEL_DATABASE"} {
		if settings[name] = getenv(name); settings[name] == "" {
			fmt.Fprintf(errOut, "load: %s is not set\n", name)
			return 2
		}
	}
	report, err := l.over(ctx, settings, cmp.Or(getenv("READ_MODEL_MONGODB_URI"), settings["MONGODB_URI"]))
	if err != nil {
		fmt.Fprintln(errOut, "load:", err)
		return 1
	}
	if *asJSON {
		text, _ := json.Marshal(report) // numbers and texts always marshal
		fmt.Fprintln(out, string(text))
	} else {
		report.Print(out)
	}
	if !report.Right() {
		return 1
	}
	return 0
}

// over runs the load with clients of its own.
func (l Load) over(ctx context.Context, settings map[string]string, readModels string) (r Report, err error) {
	source, err := mongo.Connect(options.Client().ApplyURI(settings["MONGODB_URI"]).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return r, errors.New("MONGODB_URI is no connection string of MongoDB")
	}
	defer func() { err = errors.Join(err, source.Disconnect(context.WithoutCancel(ctx))) }()
	read, err := mongo.Connect(options.Client().ApplyURI(readModels))
	if err != nil {
		return r, errors.New("READ_MODEL_MONGODB_URI is no connection string of MongoDB")
	}
	defer func() { err = errors.Join(err, read.Disconnect(context.WithoutCancel(ctx))) }()
	l.Source = source.Database(settings["MONGODB_DATABASE"]).Collection(settings["MONGODB_COLLECTION"])
	l.ReadModel = read.Database(settings["READ_MODEL_DATABASE"]).Collection("timeline")
	return l.Run(ctx)
}
