package projector

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/internal/pipeline"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/claim"
	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// reachTimeout bounds one attempt to reach a dependency. A driver that missed MongoDB's first
	// response gets the next after ten seconds (see [mongodb.Interactive]): a shorter attempt would
	// report a MongoDB that is up as unreachable.
	reachTimeout = 15 * time.Second
	// closeTimeout bounds the closing of a client or link that was used briefly.
	closeTimeout = 10 * time.Second
)

// service is a running projector, or what a command uses of one.
type service struct {
	cfg        Config
	program    string
	log        *slog.Logger
	chosen     projection.Projection
	remote     *remote.Client // of the projection's program; nil: it is part of this one
	namespace  *servicebus.Namespace
	dial       func() (*azservicebus.Client, error) // through the SDK
	administer func() (*admin.Client, error)
	mongo      *mongo.Client
	mongoSeen  mongodb.Sight
	applier    *apply.Applier
	suspects   *apply.Watch     // nil without WATCH_PROCESSES
	ui         *console.Console // nil without HTTP_UI
	pipeline   *pipeline.Pipeline
	pool       *sessions.Pool
	// ranges are those of the read model's build; nil if it has none, or is not known yet.
	ranges atomic.Pointer[build.Ranges]
	waits  sync.WaitGroup // the requests that wait for an effect
	*status
}

// open opens the clients; nothing is connected yet.
func open(ctx context.Context, cfg Config, opts Options) (*service, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.Instance = cmp.Or(opts.Instance, telemetry.Instance())
	opts.Projections = cmp.Or(opts.Projections, projection.Builtin())
	chosen, err := choose(cfg, opts.Projections, opts.remote)
	if err != nil {
		return nil, err
	}
	if opts.Credential == nil && (cfg.Namespace != "" || cfg.AccountURL != "") {
		if opts.Credential, err = azure.Credential(); err != nil {
			return nil, err
		}
	}
	s := &service{
		cfg: cfg, program: opts.program(), log: opts.Logger, chosen: chosen, remote: opts.remote, status: newStatus(opts.Instance, chosen.Name()),
	}
	if s.remote != nil {
		s.programReady = s.remote.Ready
		s.remote.Begin(remote.NewMetrics(chosen.Name(), s.registry), s.adoptDeclaration, s.refuseDeclaration)
	}
	bodies, err := openBodies(cfg, opts)
	if err != nil {
		return nil, err
	}
	s.administer = func() (*admin.Client, error) {
		return cfg.ServiceBus.Administer(opts.Credential, cfg.Administration, opts.Administration)
	}
	if err := s.openMongo(opts); err != nil {
		return nil, err
	}
	if err := s.openServiceBus(opts); err != nil {
		_ = mongodb.Disconnect(ctx, s.mongo, cfg.ShutdownTimeout/8)
		return nil, err
	}
	s.pipeline = pipeline.New(pipeline.Options{
		Program: s.program, Projection: chosen, Applier: s.applier, Remote: s.remote, Database: s.readModel(), Bodies: bodies,
		Entity: cfg.entity(), Batch: cfg.ReceiveBatch, MaxDeliveries: cfg.MaxDeliveries, AnswerBytes: cfg.answerBytes(), Administer: s.administer,
		ApplyTimeout: cfg.ApplyTimeout, SettleTimeout: cfg.SettleTimeout, UndecidedAfter: cfg.UndecidedAfter, VersionGapWait: cfg.VersionGapWait,
		Logger: s.log, Metrics: s.metrics, Tracer: opts.Tracer,
	})
	s.readable = s.pipeline.Ready
	return s, nil
}

// appName is the name by which all projectors connect to MongoDB.
const appName = "sluice-projector"

// readModel returns the database of the read model.
func (s *service) readModel() *mongo.Database { return s.mongo.Database(s.cfg.Database) }

func (s *service) openMongo(opts Options) (err error) {
	clientOptions := options.Client().ApplyURI(s.cfg.MongoURI).SetAppName(appName)
	s.mongoSeen.Watch(clientOptions)
	if opts.Mongo != nil {
		opts.Mongo(clientOptions)
	}
	if s.mongo, err = mongo.Connect(clientOptions); err != nil {
		return fmt.Errorf("open MongoDB client: %w", err)
	}
	if s.cfg.WatchProcesses && s.remote == nil { // a program of its own ends its own process
		s.suspects = apply.NewWatch(s.readModel(), s.chosen, opts.Instance, s.log)
	}
	s.applier = apply.New(s.chosen, s.mongo, s.cfg.Database, apply.Options{
		IgnoreVersions: s.cfg.VersionGapWait == 0, FirstVersion: s.cfg.VersionFirst, AppName: appName, Through: s.builtThrough, Suspects: s.suspects,
		Ended: func(n int) {
			s.log.Warn("ended abandoned transactions of a projector that no longer exists", "transactions", n)
		},
	})
	return nil
}

func (s *service) openServiceBus(opts Options) (err error) {
	busOptions := *cmp.Or(opts.ServiceBus, &azservicebus.ClientOptions{})
	if busOptions.RetryOptions == (azservicebus.RetryOptions{}) {
		// Failures are retried here, with a new session; the SDK's own retries would only hide
		// them, and take long.
		busOptions.RetryOptions = azservicebus.RetryOptions{MaxRetries: 1, RetryDelay: 200 * time.Millisecond}
	}
	s.dial = func() (*azservicebus.Client, error) { return s.cfg.ServiceBus.Client(opts.Credential, &busOptions) }
	if s.namespace, err = servicebus.New(s.cfg.ServiceBus, opts.Credential, &busOptions); err != nil {
		return err
	}
	s.pool = sessions.New(sessions.Transport{
		Receiver: sessions.Receiver(s.cfg.SessionReceiver), Connections: s.cfg.connections(), Namespace: s.namespace, Dial: s.dial,
	}, s.cfg.accepting(s))
	return nil
}

// openBodies opens the storage of claim checks, or returns nil if it is not configured.
func openBodies(cfg Config, opts Options) (pipeline.Bodies, error) {
	if cfg.Blob == (azure.Blob{}) {
		return nil, nil
	}
	o := *cmp.Or(opts.Blob, &azblob.ClientOptions{})
	o.Retry.MaxRetries = -1 // the pipeline retries at its own times
	client, err := cfg.Blob.Client(opts.Credential, &o)
	if err != nil {
		return nil, err
	}
	return claim.NewStore(client, cfg.ClaimContainer), nil
}

// connect waits until both dependencies can be reached and grant access; until then the projector
// is not ready. The workers do not wait for it.
func (s *service) connect(ctx context.Context) {
	var checks sync.WaitGroup
	checks.Go(func() {
		seen := outage.New(s.log, "connection to MongoDB")
		defer seen.Hurry(ctx, s.mongoSeen.Silence)()
		if seen.Until(ctx, reachTimeout, s.reachMongo) {
			s.mongoReady.Store(true)
		}
	})
	checks.Go(func() {
		seen := outage.New(s.log, "connection to Service Bus")
		defer seen.Hurry(ctx, nil)()
		if seen.Until(ctx, reachTimeout, s.reachServiceBus) {
			s.busReady.Store(true)
		}
	})
	checks.Wait()
}

// reachMongo pings MongoDB and creates the collections and indexes that the projection names.
func (s *service) reachMongo(ctx context.Context) error {
	if err := s.mongo.Ping(ctx, readpref.Primary()); err != nil {
		return err
	}
	if err := s.storeDeclaration(ctx); err != nil {
		return err
	}
	return build.CreateCollections(ctx, s.readModel(), s.chosen)
}

// reachServiceBus peeks at the dead-letter queue. That needs the same connection, right and entity
// as accepting a session, but is answered immediately.
func (s *service) reachServiceBus(ctx context.Context) error {
	conn, err := s.namespace.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		conn.Close(closing)
	}()
	letters := s.cfg.entity().Path() + azure.DeadLetters
	if err := conn.Claim(ctx, letters); err != nil {
		return err
	}
	first := map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)}
	if _, err := conn.Manage(ctx, letters, "com.microsoft:peek-message", "", first); err != nil {
		return fmt.Errorf("peek at the dead-letter queue of %s: %w", s.cfg.entity(), err)
	}
	return nil
}

// close closes the clients. They must no longer be in use.
func (s *service) close(ctx context.Context) {
	s.waits.Wait() // their connections are closed
	if s.remote != nil {
		s.remote.Close()
	}
	s.pool.Close(ctx)
	if err := mongodb.Disconnect(ctx, s.mongo, s.cfg.ShutdownTimeout/8); err != nil {
		s.log.Debug("MongoDB client not closed cleanly", telemetry.KeyError, err)
	}
}
