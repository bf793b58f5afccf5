package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/claim"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// closeTimeout bounds the closing of the connections at the end.
const closeTimeout = 2 * time.Second

// clients are the connections of one stream.
type clients struct {
	collection *mongo.Collection
	broker     *broker.ServiceBus
	mongoSight *mongodb.Sight
	// checkpoints are those of the stream's store.
	checkpoints checkpoints
	// inStore returns the stream's checkpoint in another store.
	inStore  func(store string) (*checkpoint.Checkpoint, error)
	claims   publish.Claims    // nil: a large event stops the stream
	refusals publish.Refusals  // nil: a message that is permanently refused stops the stream
	bodies   *container.Client // of claims and refusals; nil without either
	// openMongo sets collection and mongoSight, which are nil until it succeeds; it is nil if they
	// are set. Only the name in a mongodb+srv URI is resolved that late, if it could not be
	// resolved at the start.
	openMongo func() error
}

// clientSet holds the clients of a process. Streams with the same source or the same storage
// account share a client, which keeps their requests apart. They do not share connections to
// Service Bus: a stream that closes one because the outcome of a send is unknown would make all the
// other streams resend.
type clientSet struct {
	streams []*clients
	blob    map[azure.Blob]*azblob.Client
	stores  storeSet

	mu    sync.Mutex
	mongo map[string]source // by URI; guarded by mu
}

// source is the client of a deployment, and what is seen of its servers.
type source struct {
	client *mongo.Client
	sight  *mongodb.Sight
}

// openClients creates every client. Nothing is sent before the first use, so an unreachable service
// delays the work and does not end the process.
func openClients(ctx context.Context, cfgs []Config, opts Options) (*clientSet, error) {
	all := &clientSet{mongo: map[string]source{}, blob: map[azure.Blob]*azblob.Client{}}
	for _, cfg := range cfgs {
		if opts.Credential == nil && (cfg.ServiceBus.ConnectionString == "" || cfg.usesBlob() && cfg.Blob.ConnectionString == "") {
			var err error
			if opts.Credential, err = azure.Credential(); err != nil {
				return nil, err
			}
		}
	}
	for _, cfg := range cfgs {
		if err := all.connectStream(cfg, opts); err != nil {
			all.close(ctx) // the earlier clients already work in the background
			return nil, err
		}
	}
	return all, nil
}

// connectStream creates the clients of one stream.
func (s *clientSet) connectStream(cfg Config, opts Options) error {
	blob := s.blob[cfg.Blob]
	if blob == nil && cfg.usesBlob() {
		var err error
		if blob, err = cfg.Blob.Client(opts.Credential, blobOptionsWithoutRetries(opts.Blob)); err != nil {
			return err
		}
		s.blob[cfg.Blob] = blob
	}
	c := &clients{}
	if cfg.checkpointsInBlob() {
		c.checkpoints = blobCheckpoints(blob, cfg.CheckpointContainer)
	} else {
		var err error
		if c.checkpoints, err = s.stores.checkpoints(cfg, opts); err != nil {
			return err
		}
	}
	c.inStore = func(store string) (*checkpoint.Checkpoint, error) { return s.inStore(cfg, store, opts) }
	open := func() error {
		from, err := s.openMongo(cfg.MongoURI, opts)
		if err != nil {
			return err
		}
		c.collection, c.mongoSight = from.client.Database(cfg.Database).Collection(cfg.Collection), from.sight
		return nil
	}
	if err := open(); err != nil {
		if _, unresolved := errors.AsType[*net.DNSError](err); !unresolved {
			return err
		}
		c.openMongo = open
	}
	namespace, err := servicebus.New(cfg.ServiceBus, opts.Credential, opts.ServiceBus)
	if err != nil {
		return err
	}
	c.broker = broker.NewServiceBus(cfg.entity(), namespace)
	if cfg.usesClaimContainer() {
		c.bodies = blob.ServiceClient().NewContainerClient(cfg.ClaimContainer)
	}
	if cfg.OnOversize == "claimcheck" {
		c.claims = claim.NewStore(blob, cfg.ClaimContainer)
	}
	if cfg.OnRefused == "park" {
		c.refusals = claim.NewStore(blob, cfg.ClaimContainer)
	}
	s.streams = append(s.streams, c)
	return nil
}

// inStore returns the checkpoint of a stream in another store than the one that its settings name.
// Errors: a [settings.Problems] if the other store's settings are missing or wrong.
func (s *clientSet) inStore(cfg Config, store string, opts Options) (*checkpoint.Checkpoint, error) {
	present := cfg.CheckpointStore
	cfg.CheckpointStore = store
	var p settings.Checks
	p.Require(store != cmp.Or(present, storeBlob), "CHECKPOINT_STORE: is %s already", store)
	cfg.validateStore(&p)
	if cfg.checkpointsInBlob() {
		p.Add(cfg.Blob.Validate())
	}
	if err := p.Problems(); err != nil {
		return nil, err
	}
	return s.stores.checkpoint(cfg, opts)
}

// openMongo returns the client of a URI. Errors: a [*net.DNSError] if the name in a mongodb+srv URI
// cannot be resolved.
func (s *clientSet) openMongo(uri string, opts Options) (source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened, ok := s.mongo[uri]; ok {
		return opened, nil
	}
	mongoOptions := options.Client().ApplyURI(uri).SetAppName("sluice-producer")
	sight := &mongodb.Sight{}
	sight.Watch(mongoOptions)
	if opts.Mongo != nil {
		opts.Mongo(mongoOptions)
	}
	db, err := mongo.Connect(mongoOptions)
	if err != nil {
		return source{}, fmt.Errorf("open MongoDB client: %w", err)
	}
	s.mongo[uri] = source{db, sight}
	return s.mongo[uri], nil
}

// blobOptionsWithoutRetries disables the SDK's own retries. The election retries requests itself,
// and a conditional write that the SDK retries because its response was lost would be refused.
func blobOptionsWithoutRetries(given *azblob.ClientOptions) *azblob.ClientOptions {
	o := *cmp.Or(given, &azblob.ClientOptions{})
	o.Retry.MaxRetries = -1
	return &o
}

// serviceBusOptionsWithoutRetries disables the SDK's own retries: an operator's command reports the
// first failure.
func serviceBusOptionsWithoutRetries(given *azservicebus.ClientOptions) *azservicebus.ClientOptions {
	o := *cmp.Or(given, &azservicebus.ClientOptions{})
	o.RetryOptions.MaxRetries = -1
	return &o
}

func (s *clientSet) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var closing sync.WaitGroup
	for _, c := range s.streams {
		closing.Go(func() { c.broker.Close(ctx) })
	}
	closing.Wait()
	s.stores.close(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, opened := range s.mongo {
		_ = mongodb.Disconnect(ctx, opened.client, closeTimeout)
	}
}

// clusterIdentityTimeout bounds the query for the deployment's identity.
const clusterIdentityTimeout = 5 * time.Second

// clusterIdentity returns the identity that a deployment stores for itself, which distinguishes it
// from another deployment with the same databases: that of its replica set, or of its sharded
// cluster. It is empty if the user may not read it, or if the deployment stores none.
func clusterIdentity(ctx context.Context, client *mongo.Client) string {
	ctx, cancel := context.WithTimeout(ctx, clusterIdentityTimeout)
	defer cancel()
	var set struct {
		Settings struct {
			ReplicaSetID bson.ObjectID `bson:"replicaSetId"`
		} `bson:"settings"`
	}
	err := client.Database("local").Collection("system.replset").FindOne(ctx, bson.D{}).Decode(&set)
	if id := set.Settings.ReplicaSetID; err == nil && !id.IsZero() {
		return "replica set " + id.Hex()
	}
	var version struct {
		ClusterID bson.ObjectID `bson:"clusterId"`
	}
	err = client.Database("config").Collection("version").FindOne(ctx, bson.D{}).Decode(&version)
	if err == nil && !version.ClusterID.IsZero() {
		return "cluster " + version.ClusterID.Hex()
	}
	return ""
}
