package producer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/internal/operator"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Config holds every setting of the producer. [LoadConfig] reads it from the environment.
type Config struct {
	// MongoURI is the source's connection string: a secret. The user needs find and changeStream on
	// the collection and, for the oplog's headroom, read on the database local.
	MongoURI string `envconfig:"MONGODB_URI" secret:"true" required:"true"`
	// Database and Collection are the watched collection.
	Database   string `envconfig:"MONGODB_DATABASE" required:"true"`
	Collection string `envconfig:"MONGODB_COLLECTION" required:"true"`
	// Streams are the names of the streams if the process has several. A variable with a stream's
	// name as its prefix, such as ORDERS_MONGODB_COLLECTION, is a setting of that stream alone; all
	// others are shared.
	Streams []string `envconfig:"STREAMS"`
	// Stream names the collection with its settings. It owns the checkpoint STREAM.json and is
	// part of every message id. Default: DATABASE.COLLECTION.
	Stream string `envconfig:"STREAM_NAME"`

	azure.ServiceBus
	// Topic or Queue is the destination of the changes: exactly one must be set.
	Topic string `envconfig:"SERVICE_BUS_TOPIC"`
	Queue string `envconfig:"SERVICE_BUS_QUEUE"`
	// Administration is the URL of an emulator's administration, if it differs from its namespace.
	// Only commands use it.
	Administration string `envconfig:"SERVICE_BUS_ADMINISTRATION"`

	// CheckpointStore is where the checkpoint and the lease are: blob, mongodb, or the name of a
	// store that the program passes as Options.Store.
	CheckpointStore string `envconfig:"CHECKPOINT_STORE" default:"blob"`
	// CheckpointMongoURI is the connection string of the deployment with the checkpoint: a secret.
	// It may be that of the source.
	CheckpointMongoURI string `envconfig:"CHECKPOINT_MONGODB_URI" secret:"true"`
	// CheckpointMongoDatabase holds the checkpoint, in the collection sluice_checkpoints.
	CheckpointMongoDatabase string `envconfig:"CHECKPOINT_MONGODB_DATABASE"`

	azure.Blob
	// CheckpointContainer holds the checkpoint blobs; it is created if it is missing and that is
	// permitted.
	CheckpointContainer string `envconfig:"BLOB_CONTAINER" default:"sluice"`

	// StartFrom is where a new stream begins: latest, or timestamp with StartAt; or snapshot, with
	// the documents that are in the collection, and then every change. With checkpoint it waits
	// until a checkpoint is restored.
	StartFrom string    `envconfig:"START_FROM" default:"latest"`
	StartAt   time.Time `envconfig:"START_AT"`
	// OnHistoryLost decides what happens if the oplog no longer reaches back to the checkpoint:
	// fail, latest (continue from now; the changes in between are not published), or snapshot
	// (continue from now, with the documents of the collection).
	OnHistoryLost string `envconfig:"ON_HISTORY_LOST" default:"fail"`
	// SnapshotChunk is the maximum number of documents of a snapshot that are read as of one
	// moment. The next checkpoint holds them, so it is also how many may be published again.
	SnapshotChunk int `envconfig:"SNAPSHOT_CHUNK" default:"1000"`
	// SnapshotRate is how many documents of a snapshot are published per second on average; 0 means
	// as many as possible.
	SnapshotRate int `envconfig:"SNAPSHOT_RATE" default:"0"`
	// SnapshotReadPreference is where a snapshot reads: primary, or secondaryPreferred.
	SnapshotReadPreference string `envconfig:"SNAPSHOT_READ_PREFERENCE" default:"primary"`
	// OnCollectionReplaced decides what happens if another collection is given the watched one's
	// name, as renameCollection and $out do, so that its documents are not in the change stream:
	// fail, or continue (they are in no read model until they change).
	OnCollectionReplaced string `envconfig:"ON_COLLECTION_REPLACED" default:"fail"`
	// Operations become messages; other changes of documents are skipped.
	Operations []envelope.Operation `envconfig:"OPERATIONS" default:"insert,update,replace,delete"`
	// Pipeline is an Extended JSON array of stages for the change stream: $match, $project,
	// $addFields, $set, $unset, $replaceRoot and $replaceWith that keep _id, operationType,
	// documentKey and clusterTime.
	Pipeline string `envconfig:"PIPELINE"`
	// The paths are dotted and lead into the document. A document without an aggregate id uses
	// documentKey._id.
	AggregateIDPath   string `envconfig:"AGGREGATE_ID_PATH" default:"aggregateId"`
	EventTypePath     string `envconfig:"EVENT_TYPE_PATH" default:"type"`
	VersionPath       string `envconfig:"VERSION_PATH" default:"version"`
	CorrelationIDPath string `envconfig:"CORRELATION_ID_PATH"`
	// OnUnknownAggregate decides what happens to an update or a delete without an image of its
	// document, which would determine its aggregate: fail, or documentKey (all updates and deletes
	// use documentKey._id, unless their image is required).
	OnUnknownAggregate string `envconfig:"ON_UNKNOWN_AGGREGATE" default:"fail"`
	// TraceParentPath leads to a W3C traceparent in the document: the event's span continues that
	// trace.
	TraceParentPath string `envconfig:"TRACE_PARENT_PATH"`
	// FullDocument is the change stream's option for updates: updateLookup, whenAvailable,
	// required, or default (none).
	FullDocument string `envconfig:"FULL_DOCUMENT" default:"updateLookup"`
	// BeforeChange is the change stream's fullDocumentBeforeChange: whenAvailable, required, or
	// off. The pre-image determines the aggregate of updates and deletes.
	BeforeChange string `envconfig:"FULL_DOCUMENT_BEFORE_CHANGE" default:"whenAvailable"`

	// LeaseDuration is the duration of the blob lease: 15s to 60s, Azure's limits.
	LeaseDuration time.Duration `envconfig:"LEASE_DURATION" default:"15s"`
	// HeartbeatInterval is the time between two checkpoints.
	HeartbeatInterval time.Duration `envconfig:"HEARTBEAT_INTERVAL" default:"1s"`
	// FenceAfter is how long after the last successful checkpoint, counted from before the request,
	// the leader stops.
	FenceAfter time.Duration `envconfig:"FENCE_AFTER" default:"2.5s"`
	// TakeoverAfter is how long after the last new checkpoint a standby breaks the lease and leads.
	TakeoverAfter time.Duration `envconfig:"TAKEOVER_AFTER" default:"4s"`
	// StandbyPoll is the maximum time between two requests of a standby for the checkpoint. Once
	// the leader is half a heartbeat late, it is 250 ms.
	StandbyPoll time.Duration `envconfig:"STANDBY_POLL" default:"500ms"`
	// LeaseTakeover is break, or expiry: wait until a silent leader's lease expires.
	LeaseTakeover string `envconfig:"LEASE_TAKEOVER" default:"break"`

	// SessionKey is aggregate (each aggregate is a session) or bucket:N (all aggregates share N
	// sessions). It cannot be changed for an existing stream: the checkpoint records it, and
	// another one is refused.
	SessionKey envelope.SessionKey `envconfig:"SESSION_KEY" default:"aggregate"`
	// PublishLanes is how many batches are outstanding at once initially, each with other
	// aggregates than all the others.
	PublishLanes int `envconfig:"PUBLISH_LANES" default:"16"`
	// PublishLanesMax is the maximum: more lanes are used while acknowledgements are fast, fewer
	// while they are slow or Service Bus is busy.
	PublishLanesMax int `envconfig:"PUBLISH_LANES_MAX" default:"256"`
	// BatchScope is session (one session per batch: right for every entity), mixed (faster with
	// many small aggregates; not for partitioned entities), or auto (mixed until Service Bus
	// refuses a batch of several sessions, as a partitioned entity does; then session).
	BatchScope string `envconfig:"BATCH_SCOPE" default:"auto"`
	// BatchMessages is the maximum number of messages in a batch; the broker's size limit applies
	// as well.
	BatchMessages int `envconfig:"BATCH_MESSAGES" default:"500"`
	// Pack is off, or auto: events of one session that wait are sent in one message, of at most
	// PackEvents events and a body of at most PackBytes bytes, once an operator has confirmed that
	// every reader knows packs. Azure bills each 64 KB of a message as a message.
	Pack       string `envconfig:"PACK" default:"off"`
	PackEvents int    `envconfig:"PACK_EVENTS" default:"20"`
	PackBytes  int    `envconfig:"PACK_BYTES" default:"60000"`
	// MessageFormat is json (canonical Extended JSON) or bson (the server's bytes).
	MessageFormat string `envconfig:"MESSAGE_FORMAT" default:"json"`
	// OnOversize decides what happens to an event that is too large for a message: fail (the stream
	// stops), or claimcheck (its body is stored as a blob in ClaimContainer, which the message
	// names; the container is created if it is missing and that is permitted).
	OnOversize string `envconfig:"ON_OVERSIZE" default:"fail"`
	// OnRefused decides what happens to a message that Service Bus permanently refuses: fail (the
	// stream stops), or park (it is stored in ClaimContainer with a record of the reason, and the
	// stream continues without it).
	OnRefused string `envconfig:"ON_REFUSED" default:"fail"`
	// RefusedAfter is how long Service Bus must object to a message, while it accepts others of the
	// same session, before the message counts as permanently refused. A condition that concerns the
	// message itself counts at once.
	RefusedAfter   time.Duration `envconfig:"REFUSED_AFTER" default:"5m"`
	ClaimContainer string        `envconfig:"CLAIM_CHECK_CONTAINER" default:"claim-checks"`
	// MaxInFlightEvents and MaxInFlightBytes limit what has been read and not yet acknowledged. At
	// the limit, reading pauses.
	MaxInFlightEvents int64 `envconfig:"MAX_IN_FLIGHT_EVENTS" default:"5000"`
	MaxInFlightBytes  int64 `envconfig:"MAX_IN_FLIGHT_BYTES" default:"16777216"`

	// StallAfter is how long the leader continues without an acknowledgement while events wait, or
	// without a response of MongoDB, before it steps down: another replica may do better. 0 means
	// forever.
	StallAfter time.Duration `envconfig:"STALL_AFTER" default:"60s"`
	// ShutdownTimeout is how long a stop may take to send what is in flight.
	ShutdownTimeout time.Duration `envconfig:"SHUTDOWN_TIMEOUT" default:"20s"`

	settings.Process
}

// LoadConfig reads the settings of a process with one stream from the environment. The error is a
// [settings.Problems] with every problem found.
func LoadConfig() (Config, error) {
	cfgs, err := loadStreams()
	if err == nil && len(cfgs) > 1 {
		err = settings.Problems{errors.New("STREAMS: names several streams")}
	}
	return cfgs[0], err
}

// usesClaimContainer reports whether the container of claim checks is used.
func (c *Config) usesClaimContainer() bool {
	return c.OnOversize == "claimcheck" || c.OnRefused == "park"
}

// usesBlob reports whether a storage account is used at all.
func (c *Config) usesBlob() bool { return c.checkpointsInBlob() || c.usesClaimContainer() }

func (c *Config) entity() string { return c.Topic + c.Queue } // exactly one is set

func (c *Config) format() envelope.Format {
	if c.MessageFormat == "bson" {
		return envelope.BSON
	}
	return envelope.JSON
}

// packEvents returns how many events a message may hold; 0: packs are off.
func (c *Config) packEvents() int {
	if c.Pack != "auto" {
		return 0
	}
	return c.PackEvents
}

// fullDocument converts a setting to the driver's option; the values default and off become empty.
func fullDocument(setting string) options.FullDocument {
	if setting == "default" || setting == "off" {
		return ""
	}
	return options.FullDocument(setting)
}

// electionConfig returns the configuration of the election.
func (c *Config) electionConfig(instance string) leader.Config {
	return leader.Config{
		Stream:            c.Stream,
		Instance:          instance,
		SessionKey:        c.SessionKey,
		Fingerprint:       c.mappingFingerprint(),
		LeaseDuration:     c.LeaseDuration,
		RenewInterval:     c.LeaseDuration / 3,
		HeartbeatInterval: c.HeartbeatInterval,
		FenceAfter:        c.FenceAfter,
		TakeoverAfter:     c.TakeoverAfter,
		TakeoverByExpiry:  c.LeaseTakeover == "expiry",
		StandbyPoll:       c.StandbyPoll,
		StopTimeout:       c.ShutdownTimeout,
		AwaitCheckpoint:   c.StartFrom == "checkpoint",
		Store:             c.storeName(),
	}
}

// mapping returns where the parts of an event are in a document.
func (c *Config) mapping() changes.Mapping {
	m := changes.Mapping{
		Stream:          c.Stream,
		AggregatePath:   c.AggregateIDPath,
		TypePath:        c.EventTypePath,
		VersionPath:     c.VersionPath,
		CorrelationPath: c.CorrelationIDPath,
		TracePath:       c.TraceParentPath,
		Operations:      c.Operations,
		ByKey:           c.OnUnknownAggregate == "documentKey",
		PostImages:      c.FullDocument == "required" || c.FullDocument == "whenAvailable",
	}
	// An optional image must not decide the aggregate: without it the same change would go to
	// another one. It is used only if a missing image stops the stream.
	decidesAggregate := func(setting string) bool { return setting == "required" || setting == "whenAvailable" && !m.ByKey }
	m.Images = changes.Images{Before: decidesAggregate(c.BeforeChange), After: decidesAggregate(c.FullDocument)}
	return m
}

// mappingFingerprint returns the settings that decide the aggregate and the version of a change, as
// the checkpoint records them.
func (c *Config) mappingFingerprint() checkpoint.MappingFingerprint {
	var pipeline bytes.Buffer
	if json.Compact(&pipeline, []byte(c.Pipeline)) != nil {
		pipeline.Reset() // it is empty
	}
	m := c.mapping()
	r := checkpoint.MappingFingerprint{
		AggregateIDPath: c.AggregateIDPath, VersionPath: c.VersionPath, Pipeline: pipeline.String(),
		Collection: c.Database + "." + c.Collection, Entity: c.entity(), Numbers: checkpoint.NumbersByValue,
	}
	operations := make([]string, len(c.Operations))
	for i, o := range c.Operations {
		operations[i] = string(o)
		switch o {
		case envelope.Update:
			r.Updates = m.Source(o)
		case envelope.Delete:
			r.Deletes = m.Source(o)
		default: // the document itself has the aggregate
		}
	}
	r.Operations = strings.Join(operations, ",")
	return r
}

// readerConfig returns the reader's configuration. The settings must be valid: the pipeline is
// parsed again.
func (c *Config) readerConfig(epoch int64) changes.Config {
	pipeline, _ := changes.ParsePipeline(c.Pipeline)
	return changes.Config{
		Pipeline:                 pipeline,
		Epoch:                    epoch,
		Mapping:                  c.mapping(),
		FullDocument:             fullDocument(c.FullDocument),
		FullDocumentBeforeChange: fullDocument(c.BeforeChange),
		StartAt:                  c.StartAt,
		RestartWhenLost:          c.OnHistoryLost == "latest",
		Backfill: changes.Backfill{
			Initial:        c.StartFrom == "snapshot",
			WhenLost:       c.OnHistoryLost == "snapshot",
			ChunkDocuments: c.SnapshotChunk,
			Rate:           c.SnapshotRate,
			Secondary:      c.SnapshotReadPreference == "secondaryPreferred",
		},
		ContinueWhenReplaced: c.OnCollectionReplaced == "continue",
		GiveUpAfter:          c.StallAfter,
	}
}

// publisherConfig returns the publisher's configuration.
func (c *Config) publisherConfig(clients *clients, tracer trace.Tracer) publish.Config {
	return publish.Config{
		Lanes:         c.PublishLanes,
		MaxLanes:      c.PublishLanesMax,
		Scope:         publish.Scope(c.BatchScope),
		Format:        c.format(),
		BatchMessages: c.BatchMessages,
		PackEvents:    c.PackEvents,
		PackBytes:     c.PackBytes,
		MaxEvents:     c.MaxInFlightEvents,
		MaxBytes:      c.MaxInFlightBytes,
		Claims:        clients.claims,
		Refusals:      clients.refusals,
		RefusedAfter:  c.RefusedAfter,
		StallAfter:    c.StallAfter,
		Tracer:        tracer,
		Entity:        c.entity(),
	}
}

// operatorStream returns what commands work with, without their output.
func (c *Config) operatorStream(clients *clients, opts Options) (*operator.Stream, error) {
	reader := c.readerConfig(0)
	settings, err := reader.SettingsHash(clients.collection)
	if err != nil {
		return nil, err
	}
	return &operator.Stream{
		Name:       c.Stream,
		Open:       clients.checkpoints.open,
		OtherStore: clients.checkpoints.other,
		InStore:    clients.inStore,
		Container:  clients.checkpoints.container,
		Collection: clients.collection,
		Entity: operator.Entity{
			Name: c.entity(), Queue: c.Queue != "",
			Administer: func() (*admin.Client, error) {
				return c.ServiceBus.Administer(opts.Credential, c.Administration, opts.Administration)
			},
		},
		Checks: operator.Checks{
			Store:  clients.checkpoints.check,
			Claims: clients.bodies,
			Dial: func() (*azservicebus.Client, error) {
				return c.ServiceBus.Client(opts.Credential, serviceBusOptionsWithoutRetries(opts.ServiceBus))
			},
			LocalAuth: c.ServiceBus.ConnectionString != "",
			Times:     leader.Times{Heartbeat: c.HeartbeatInterval, Fence: c.FenceAfter, Takeover: c.TakeoverAfter, Poll: c.StandbyPoll},
			Images:    func(ctx context.Context) error { return reader.CheckImages(ctx, clients.collection) },
			Types: func(ctx context.Context) (changes.Sample, error) {
				return reader.Mapping.Sample(ctx, clients.collection)
			},
			UnstableFilter: reader.UnstableFilter(),
		},
		Operator:      "operator@" + strings.TrimSpace(cmp.Or(opts.Instance, telemetry.Instance())),
		LeaseDuration: c.LeaseDuration,
		FullDocument:  fullDocument(c.FullDocument),
		BeforeChange:  fullDocument(c.BeforeChange),
		Pipeline:      reader.Pipeline,
		Settings:      settings,
		Fingerprint:   c.mappingFingerprint(),
		SessionKey:    c.SessionKey,
		PackEvents:    c.packEvents(),
		AggregatePath: c.AggregateIDPath,
		CheckSnapshot: func(single bool) error {
			if err := reader.CheckBackfill(true); err != nil || !single {
				return err
			}
			return reader.CheckAggregates()
		},
		Cluster: func(ctx context.Context) string { return clusterIdentity(ctx, clients.collection.Database().Client()) },
	}, nil
}
