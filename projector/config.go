package projector

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/internal/operator"
	"github.com/sluice-cdc/sluice/projector/internal/pipeline"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/memory"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// Config is the projector's settings, each from the environment variable in its tag. Durations are
// Go's: 500ms, 15s, 2m.
type Config struct {
	// ServiceBus is the namespace of the messages, and how to sign in to it.
	azure.ServiceBus
	// Topic and Subscription, or Queue, name what to receive from. It must require sessions.
	Topic        string `envconfig:"SERVICE_BUS_TOPIC"`
	Subscription string `envconfig:"SERVICE_BUS_SUBSCRIPTION"`
	Queue        string `envconfig:"SERVICE_BUS_QUEUE"`
	// Administration is the URL of an emulator's administration, which differs from that of its
	// namespace. The doctor uses it, and the projector if MaxDeliveries is 0.
	Administration string `envconfig:"SERVICE_BUS_ADMINISTRATION"`
	// Connections is the number of AMQP connections of this replica; 0 is one for every 32 of
	// MaxSessions, or for every four if the SDK accepts sessions: it accepts one at a time on each.
	Connections int `envconfig:"SERVICE_BUS_CONNECTIONS" default:"0"`
	// SessionReceiver is how sessions are accepted: direct (over AMQP, in one round trip), sdk
	// (through azservicebus, in fifteen), or auto, as is empty: direct, unless the service refuses
	// that from the start.
	SessionReceiver string `envconfig:"SESSION_RECEIVER" default:"auto"`

	// MongoURI is the deployment of the read models: a secret. A projection with more than one
	// document per aggregate needs a replica set.
	MongoURI string `envconfig:"MONGODB_URI" secret:"true" required:"true"`
	// Database is the database of the read models.
	Database string `envconfig:"READ_MODEL_DATABASE" required:"true"`
	// Projection is the name of the projection to run. Empty is the only one that the program has,
	// or timeline if it has those that come with the projector.
	Projection string `envconfig:"PROJECTION" default:""`

	// ProjectionURL is the address of the program that is the projection, such as
	// http://127.0.0.1:8088. Empty: the projection is part of this program.
	ProjectionURL string `envconfig:"PROJECTION_URL" default:""`
	// ProjectionTimeout bounds one call of that program.
	ProjectionTimeout time.Duration `envconfig:"PROJECTION_TIMEOUT" default:"10s"`

	// MirrorCollection is the collection of the projection mirror. Another name is another
	// projection, with positions of its own.
	MirrorCollection string `envconfig:"MIRROR_COLLECTION" default:"mirror"`
	// MirrorKey is the dotted path of the field that becomes the mirror's _id.
	MirrorKey string `envconfig:"MIRROR_KEY" default:"_id"`
	// MirrorFields are the top-level fields that the mirror keeps, separated by commas; empty keeps
	// all.
	MirrorFields []string `envconfig:"MIRROR_FIELDS" default:""`

	// Blob is the storage of the bodies of events that were too large for a message. It is
	// optional: without it the projector waits at the first such event, and logs why.
	// ClaimContainer is the producer's setting of that name.
	azure.Blob
	ClaimContainer string `envconfig:"CLAIM_CHECK_CONTAINER" default:"claim-checks"`

	// SourceMongoURI is the deployment of the watched collection: a secret. Empty: that of the read
	// models. It, the database and the collection are for `projector verify` alone.
	SourceMongoURI   string `envconfig:"SOURCE_MONGODB_URI" secret:"true"`
	SourceDatabase   string `envconfig:"SOURCE_DATABASE"`
	SourceCollection string `envconfig:"SOURCE_COLLECTION"`
	// CheckpointStore, CheckpointMongoURI (a secret), CheckpointMongoDatabase, CheckpointContainer
	// and Stream are the producer's settings of these names, for `projector build` and `repair`:
	// they read from the producer's checkpoint which stream goes on behind them. An empty Stream is
	// SOURCE_DATABASE.SOURCE_COLLECTION.
	CheckpointStore         string `envconfig:"CHECKPOINT_STORE" default:"blob"`
	CheckpointMongoURI      string `envconfig:"CHECKPOINT_MONGODB_URI" secret:"true"`
	CheckpointMongoDatabase string `envconfig:"CHECKPOINT_MONGODB_DATABASE"`
	CheckpointContainer     string `envconfig:"BLOB_CONTAINER" default:"sluice"`
	Stream                  string `envconfig:"STREAM_NAME"`
	// AggregateIDPath, EventTypePath and VersionPath are the producer's settings of these names,
	// for `projector verify` too.
	AggregateIDPath string `envconfig:"AGGREGATE_ID_PATH" default:"aggregateId"`
	EventTypePath   string `envconfig:"EVENT_TYPE_PATH" default:"type"`
	VersionPath     string `envconfig:"VERSION_PATH" default:"version"`

	// MaxSessions is how many sessions this replica handles at once. Sessions that only wait are
	// held besides.
	MaxSessions int `envconfig:"MAX_SESSIONS" default:"64"`
	// ReceiveBatch is how many messages of a session are received and applied at once, 1 to 1000.
	ReceiveBatch int `envconfig:"RECEIVE_BATCH" default:"100"`
	// MaxInFlightBytes is about how many bytes of messages this replica holds: if messages are
	// large, fewer are received at once. Answers of a projection's program are within it. 0 is a
	// quarter of the container's memory limit, and without a limit 256 MiB.
	MaxInFlightBytes int64 `envconfig:"MAX_IN_FLIGHT_BYTES" default:"0"`
	// SessionIdle is how long a session without messages is kept, provided that another worker of
	// this replica has sought a session for that long and found none. Otherwise the session is
	// released at once.
	SessionIdle time.Duration `envconfig:"SESSION_IDLE" default:"2s"`
	// SessionMaxHold is how long a session with messages is kept while no other worker is free.
	SessionMaxHold time.Duration `envconfig:"SESSION_MAX_HOLD" default:"5s"`
	// AcceptTimeout is how long one accept waits for a session. It is long because each accept is a
	// request to Service Bus, and takes some fifteen round trips if the SDK accepts sessions.
	AcceptTimeout time.Duration `envconfig:"ACCEPT_TIMEOUT" default:"60s"`
	// ApplyTimeout bounds one attempt to write a batch, which is retried for as long as it takes.
	ApplyTimeout time.Duration `envconfig:"APPLY_TIMEOUT" default:"10s"`
	// UndecidedAfter is how long an event may fail, with an unrecognised error, while events of
	// other aggregates are applied, before its aggregate is parked; 0: for any time.
	UndecidedAfter time.Duration `envconfig:"UNDECIDED_AFTER" default:"10m"`
	// WatchProcesses records which events the projection has in hand after a projector has ended
	// without stopping, and parks the aggregate of an event that ended two of them.
	WatchProcesses bool `envconfig:"WATCH_PROCESSES" default:"true"`
	// VersionGapWait is how long an insert waits for versions that are missing between the last one
	// applied and its own, before its aggregate is parked; 0: versions are not checked, for sources
	// whose versions do not grow by one.
	VersionGapWait time.Duration `envconfig:"VERSION_GAP_WAIT" default:"30s"`
	// VersionFirst is the version that every aggregate begins with: an insert with a higher one, of
	// an aggregate of which nothing was applied, then waits for the missing ones, and is parked as
	// any other gap; 0: an aggregate may begin with any version. It is for streams read from their
	// beginning, and for projections that write something for an aggregate's first event.
	VersionFirst int64 `envconfig:"VERSION_FIRST" default:"0"`
	// MaxDeliveries is the MaxDeliveryCount of the subscription or queue, after which the broker
	// dead-letters a message out of order. Before that, the projector parks the message's
	// aggregate. 0: the projector asks the entity, if it may; otherwise 10, the service's default.
	MaxDeliveries int `envconfig:"MAX_DELIVERIES" default:"0"`
	// SettleTimeout bounds the settlement of one message.
	SettleTimeout time.Duration `envconfig:"SETTLE_TIMEOUT" default:"5s"`
	// ShutdownTimeout is how long a stop may take: finish the batches in hand, release the
	// sessions, disconnect. It must be shorter than the platform's grace period.
	ShutdownTimeout time.Duration `envconfig:"SHUTDOWN_TIMEOUT" default:"20s"`

	settings.Process
}

// LoadConfig reads the settings from the environment. The error is a [settings.Problems] with every
// problem found, without any setting's value.
func LoadConfig() (Config, error) {
	var c Config
	err := settings.Load(&c)
	problems, _ := errors.AsType[settings.Problems](err)
	// The producer's database resembles that of its checkpoint.
	known := settings.Known{Spec: c, Foreign: append(c.IgnoreVariables, "MONGODB_DATABASE")}
	problems = append(problems, known.Misspelt(os.Environ())...)
	if len(problems) > 0 {
		return Config{}, problems
	}
	return c, nil
}

// problems validates the configuration, without what only the registry knows.
func (c *Config) problems() (all settings.Problems) {
	if joined, ok := c.Validate().(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	if _, _, err := projection.ParseVersion(c.Projection); err != nil {
		all = append(all, fmt.Errorf("PROJECTION: %w", err))
	}
	return all
}

// connections returns how many connections to make.
func (c *Config) connections() int {
	if c.Connections > 0 {
		return c.Connections
	}
	sessionsEach := 32
	if sessions.Receiver(c.SessionReceiver) == sessions.SDK {
		sessionsEach = 4
	}
	return (c.MaxSessions + sessionsEach - 1) / sessionsEach
}

// maxInFlightBytes returns how many bytes of messages to have in hand.
func (c *Config) maxInFlightBytes() int64 {
	if c.MaxInFlightBytes > 0 {
		return c.MaxInFlightBytes
	}
	if limit := memory.Limit(); limit > 0 {
		return limit / 4
	}
	return 256 << 20
}

// answerBytes returns how many bytes of answers a session keeps: messages take three quarters of
// its share, as they arrive, are applied and are completed.
func (c *Config) answerBytes() int { return max(int(c.maxInFlightBytes())/(4*c.MaxSessions), 1) }

// entity returns the entity to receive from.
func (c *Config) entity() azure.Entity {
	return azure.Entity{Topic: c.Topic, Subscription: c.Subscription, Queue: c.Queue}
}

func (c *Config) mirror() (projection.Mirror, error) {
	return projection.NewMirror(projection.MirrorOptions{Collection: c.MirrorCollection, Key: c.MirrorKey, Fields: c.MirrorFields})
}

// checkSource compares the read model's collections with the source by name, if the settings name
// it.
func (c *Config) checkSource(chosen projection.Projection) error {
	collections, _ := projection.Collections(chosen)
	for _, own := range collections {
		if c.SourceDatabase == c.Database && c.SourceCollection == own.Name && (c.SourceMongoURI == "" || sameHosts(c.SourceMongoURI, c.MongoURI)) {
			return pipeline.OwnSource(c.Database, own.Name)
		}
	}
	return nil
}

func sameHosts(a, b string) bool {
	hosts := func(uri string) []string {
		all := options.Client().ApplyURI(uri).Hosts
		slices.Sort(all)
		return all
	}
	return slices.Equal(hosts(a), hosts(b))
}

// operating returns what commands work with, except what is opened for one command.
func (c *Config) operating(s *service) *operator.Projector {
	return &operator.Projector{
		Program: s.program, Projection: s.chosen, Remote: s.remote, Applier: s.applier, Database: s.readModel(),
		Entity: c.entity(), LocalAuth: c.ServiceBus.ConnectionString != "",
		MaxDeliveries: s.pipeline.MaxDeliveries(), Asks: c.MaxDeliveries == 0, Administer: s.administer,
		Redeem:       s.pipeline.Redeem,
		Setting:      c.Projection,
		ApplyTimeout: c.ApplyTimeout, SettleTimeout: c.SettleTimeout,
		Stops: lookForBuild + reachTimeout + c.ShutdownTimeout,
		Source: operator.Source{
			MongoURI: c.SourceMongoURI, Database: c.SourceDatabase, Collection: c.SourceCollection,
			AggregatePath: c.AggregateIDPath, TypePath: c.EventTypePath, VersionPath: c.VersionPath,
		},
	}
}

// accepting returns how sessions are accepted and held.
func (c *Config) accepting(s *service) sessions.Options {
	return sessions.Options{
		Entity:  c.entity(),
		Workers: c.MaxSessions, Batch: c.ReceiveBatch, Bytes: int(c.maxInFlightBytes()),
		Idle: c.SessionIdle, MaxHold: c.SessionMaxHold,
		AcceptTimeout: c.AcceptTimeout, CloseTimeout: c.ShutdownTimeout / 8,
		Logger:   s.log,
		Held:     s.metrics.Held,
		Accepted: s.metrics.Accepted,
	}
}
