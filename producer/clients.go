package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/azure"
)

// closeTimeout bounds how long closing the connections may take at the end.
const closeTimeout = 2 * time.Second

// clients are the connections of one replica.
type clients struct {
	collection *mongo.Collection
	broker     *publish.ServiceBus
	blob       *azblob.Client
}

// connect prepares every connection. Nothing is sent before the first use, so that a service that is away delays the
// work and does not end the process.
func connect(config Config, o Options) (*clients, error) {
	credential := o.Credential
	if credential == nil && (config.ServiceBus.ConnectionString == "" || config.Blob.ConnectionString == "") {
		var err error
		if credential, err = azure.Credential(); err != nil {
			return nil, err
		}
	}
	blob, err := config.Blob.Client(credential, blobOptions(o.Blob))
	if err != nil {
		return nil, err
	}
	mongoOptions := options.Client().ApplyURI(config.MongoURI).SetAppName("sluice-producer")
	if o.Mongo != nil {
		o.Mongo(mongoOptions)
	}
	db, err := mongo.Connect(mongoOptions)
	if err != nil {
		return nil, fmt.Errorf("open MongoDB client: %w", err)
	}
	return &clients{
		collection: db.Database(config.Database).Collection(config.Collection),
		broker: publish.NewServiceBus(config.entity(), func() (*azservicebus.Client, error) {
			return config.ServiceBus.Client(credential, busOptions(o.ServiceBus))
		}),
		blob: blob,
	}, nil
}

// blobOptions turns the SDK's own retries off: the election repeats what it must, at its own times, and a repeated
// conditional write whose first answer was lost would be refused.
func blobOptions(given *azblob.ClientOptions) *azblob.ClientOptions {
	var o azblob.ClientOptions
	if given != nil {
		o = *given
	}
	o.Retry.MaxRetries = -1
	return &o
}

// busOptions turns the SDK's own retries off: a lane repeats what it must, and [publish.ServiceBus] replaces what is
// broken.
func busOptions(given *azservicebus.ClientOptions) *azservicebus.ClientOptions {
	var o azservicebus.ClientOptions
	if given != nil {
		o = *given
	}
	o.RetryOptions.MaxRetries = -1
	return &o
}

func (c *clients) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	c.broker.Close(ctx)
	_ = c.collection.Database().Client().Disconnect(ctx)
}

func (c *Config) election(instance string) leader.Config {
	return leader.Config{
		Stream:            c.Stream,
		Instance:          instance,
		LeaseDuration:     c.LeaseDuration,
		RenewInterval:     c.LeaseDuration / 3,
		HeartbeatInterval: c.HeartbeatInterval,
		FenceAfter:        c.FenceAfter,
		TakeoverAfter:     c.TakeoverAfter,
		TakeoverByExpiry:  c.LeaseTakeover == "expiry",
		StandbyPoll:       c.StandbyPoll,
		StopTimeout:       c.ShutdownTimeout,
	}
}

func (c *Config) reading() changes.Config {
	return changes.Config{
		Mapping: changes.Mapping{
			Stream:          c.Stream,
			AggregatePath:   c.AggregateIDPath,
			TypePath:        c.EventTypePath,
			VersionPath:     c.VersionPath,
			CorrelationPath: c.CorrelationIDPath,
			Operations:      c.Operations,
		},
		FullDocument:             fullDocument(c.FullDocument),
		FullDocumentBeforeChange: fullDocument(c.BeforeChange),
		StartAt:                  c.StartAt,
		RestartWhenLost:          c.OnHistoryLost == "latest",
	}
}

func (c *Config) publishing() publish.Config {
	return publish.Config{
		Lanes:         c.PublishLanes,
		Scope:         publish.Scope(c.BatchScope),
		Format:        c.format(),
		BatchMessages: c.BatchMessages,
		MaxEvents:     c.MaxInFlightEvents,
		MaxBytes:      c.MaxInFlightBytes,
		StallAfter:    c.StallAfter,
	}
}
