package producer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/claim"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// closeTimeout bounds how long closing the connections may take at the end.
const closeTimeout = 2 * time.Second

// clients are the connections of one stream.
type clients struct {
	collection *mongo.Collection
	broker     *broker.ServiceBus
	mongoSeen  *mongodb.Sight
	blob       *azblob.Client
	claims     publish.Claims   // nil: large events stop the stream
	refusals   publish.Refusals // nil: a message that is refused for good stops the stream
}

// connections are those of a process. Streams with the same source or the same storage account share a client, which keeps
// their requests apart. They do not share connections to Service Bus: a stream that closes one, because it cannot know what became of
// a send, would make all the others send again.
type connections struct {
	streams []*clients
	mongo   map[string]*mongo.Client  // by URI
	seen    map[string]*mongodb.Sight // of them
	blob    map[azure.Blob]*azblob.Client
}

// connect prepares every connection. Nothing is sent before the first use, so that a service that is away delays the
// work and does not end the process.
func connect(ctx context.Context, configs []Config, o Options) (*connections, error) {
	all := &connections{mongo: map[string]*mongo.Client{}, seen: map[string]*mongodb.Sight{}, blob: map[azure.Blob]*azblob.Client{}}
	credential := o.Credential
	for _, config := range configs {
		if credential == nil && (config.ServiceBus.ConnectionString == "" || config.Blob.ConnectionString == "") {
			var err error
			if credential, err = azure.Credential(); err != nil {
				return nil, err
			}
		}
	}
	for _, config := range configs {
		if err := all.connectStream(config, credential, o); err != nil {
			all.close(ctx) // the clients before it already work in the background
			return nil, err
		}
	}
	return all, nil
}

// connectStream prepares the connections of one stream.
func (n *connections) connectStream(config Config, credential azcore.TokenCredential, o Options) error {
	blob := n.blob[config.Blob]
	if blob == nil {
		var err error
		if blob, err = config.Blob.Client(credential, blobOptions(o.Blob)); err != nil {
			return err
		}
		n.blob[config.Blob] = blob
	}
	db := n.mongo[config.MongoURI]
	if db == nil {
		mongoOptions := options.Client().ApplyURI(config.MongoURI).SetAppName("sluice-producer")
		n.seen[config.MongoURI] = &mongodb.Sight{}
		n.seen[config.MongoURI].Watch(mongoOptions)
		if o.Mongo != nil {
			o.Mongo(mongoOptions)
		}
		var err error
		if db, err = mongo.Connect(mongoOptions); err != nil {
			return fmt.Errorf("open MongoDB client: %w", err)
		}
		n.mongo[config.MongoURI] = db
	}
	namespace, err := servicebus.New(config.ServiceBus, credential, o.ServiceBus)
	if err != nil {
		return err
	}
	c := &clients{
		collection: db.Database(config.Database).Collection(config.Collection),
		broker:     broker.NewServiceBus(config.entity(), namespace),
		blob:       blob,
		mongoSeen:  n.seen[config.MongoURI],
	}
	kept := claim.NewStore(blob, config.ClaimContainer)
	if config.OnOversize == "claimcheck" {
		c.claims = kept
	}
	if config.OnRefused == "park" {
		c.refusals = kept
	}
	n.streams = append(n.streams, c)
	return nil
}

// blobOptions turns the SDK's own retries off: the election retries what it must, when it must, and a conditional write that
// is retried because its first answer was lost would be refused.
func blobOptions(given *azblob.ClientOptions) *azblob.ClientOptions {
	var o azblob.ClientOptions
	if given != nil {
		o = *given
	}
	o.Retry.MaxRetries = -1
	return &o
}

// busOptions turns the SDK's own retries off: an operator's command reports the first failure.
func busOptions(given *azservicebus.ClientOptions) *azservicebus.ClientOptions {
	var o azservicebus.ClientOptions
	if given != nil {
		o = *given
	}
	o.RetryOptions.MaxRetries = -1
	return &o
}

func (n *connections) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var closing sync.WaitGroup
	for _, c := range n.streams {
		closing.Go(func() { c.broker.Close(ctx) })
	}
	closing.Wait()
	for _, db := range n.mongo {
		_ = mongodb.Disconnect(ctx, db, closeTimeout)
	}
}
