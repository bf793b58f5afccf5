package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// places are the locations of the data.
type places struct {
	endpoints  map[string]string
	sourceURI  string // of the MongoDB with the events
	source     string // database of the events
	collection string // of the events
	readModel  string // database of the read models
	container  string // of the checkpoint blobs
	route      emulator.Route
}

// events is the source collection's name, where it is not the user's.
const events = "events"

func embeddedPlaces(s *stack.Stack) places {
	endpoints := map[string]string{}
	for _, name := range []string{stack.EnvMongo, stack.EnvServiceBus, stack.EnvBlob} {
		endpoints[name] = s.Endpoint(name)
	}
	return places{
		endpoints: endpoints, sourceURI: endpoints[stack.EnvMongo], source: "shop", collection: events,
		readModel: "readmodel", container: "sluice", route: s.Route,
	}
}

// externalPlaces keeps away from what is there: databases and a container of their own for every
// run. The topic and the subscription must exist, with sessions, and should be empty.
func externalPlaces(now time.Time, endpoints map[string]string) places {
	id := now.UTC().Format("20060102t150405")
	return places{
		endpoints:  endpoints,
		sourceURI:  endpoints[stack.EnvMongo],
		source:     "sluice_local_" + id + "_shop",
		collection: events,
		readModel:  "sluice_local_" + id + "_readmodel",
		container:  "sluice-local-" + id,
		route:      emulator.Route{Topic: stack.Topic, Subscription: stack.Subscription, LockDuration: time.Minute},
	}
}

// Open takes the ports of the stack that the flags ask for.
func Open(ctx context.Context, o flags.Options) (*stack.Stack, error) {
	so := stack.Options{
		Options: emulator.Options{Latency: o.Latency, Ports: o.Ports, ServiceBusCredits: o.Credits, ServiceBus: o.Entities, Snapshot: o.Snapshot},
		Azurite: o.Azurite,
	}
	if o.Azurite {
		root, err := child.Checkout()
		if err != nil {
			return nil, err
		}
		so.AzuriteDir = filepath.Join(root, "tests", "emulator", "azurite")
	}
	s, err := stack.New(ctx, so)
	if port, is := errors.AsType[*emulator.PortError](err); is {
		return nil, &flags.UsageError{Problems: []string{"--ports: " + port.Error()}}
	}
	return s, err
}

// data is the run's own connection to the databases.
type data struct {
	client    *mongo.Client
	source    *mongo.Collection
	readModel *mongo.Database
}

// toMongo returns the options of a client of a MongoDB. What is counted as inserted survives an
// election: the default before MongoDB 5 is one member.
func toMongo(uri string) *options.ClientOptions {
	return options.Client().ApplyURI(uri).SetAppName("sluice-local").SetWriteConcern(writeconcern.Majority())
}

func (r *runner) connect() (*data, error) {
	client, err := mongo.Connect(toMongo(r.places.endpoints[stack.EnvMongo]))
	if err != nil {
		return nil, fmt.Errorf("connect to MongoDB: %w", err)
	}
	source := client.Database(r.places.source).Collection(r.places.collection)
	if r.source != nil {
		source = r.source.Collection
	}
	return &data{
		client:    client,
		source:    source,
		readModel: client.Database(r.places.readModel),
	}, nil
}

func (d *data) close(ctx context.Context) error {
	if err := mongodb.Disconnect(ctx, d.client, 5*time.Second); err != nil {
		return fmt.Errorf("disconnect from MongoDB: %w", err)
	}
	return nil
}
