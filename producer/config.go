package producer

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// Config is every setting of the producer. [LoadConfig] reads it from the environment.
type Config struct {
	// MongoURI is the source's connection string: a secret. The user needs find and changeStream on the collection,
	// and read on the database local to have the oplog's headroom told.
	MongoURI string `envconfig:"MONGODB_URI" required:"true"`
	// Database and Collection are what is watched.
	Database   string `envconfig:"MONGODB_DATABASE" required:"true"`
	Collection string `envconfig:"MONGODB_COLLECTION" required:"true"`
	// Streams are the names of the streams, where the process has several. A variable that begins with a stream's name, such
	// as ORDERS_MONGODB_COLLECTION, is a setting of that stream alone; what has none is shared by all.
	Streams []string `envconfig:"STREAMS"`
	// Stream names the collection with its settings; it owns the checkpoint blob STREAM.json and is part of every
	// message id. Default: DATABASE.COLLECTION.
	Stream string `envconfig:"STREAM_NAME"`

	azure.ServiceBus
	// Topic or Queue is where the changes go: exactly one.
	Topic string `envconfig:"SERVICE_BUS_TOPIC"`
	Queue string `envconfig:"SERVICE_BUS_QUEUE"`

	azure.Blob
	// Container holds the checkpoint blobs; it is created where missing and allowed.
	Container string `envconfig:"BLOB_CONTAINER" default:"sluice"`

	// StartFrom is where a new stream begins: latest, or timestamp with StartAt.
	StartFrom string    `envconfig:"START_FROM" default:"latest"`
	StartAt   time.Time `envconfig:"START_AT"`
	// OnHistoryLost is what happens when the server's oplog no longer reaches back to the checkpoint: fail, or latest (go
	// on from now; what lies between is not published).
	OnHistoryLost string `envconfig:"ON_HISTORY_LOST" default:"fail"`
	// Operations become messages; other changes of documents are passed over.
	Operations []envelope.Operation `envconfig:"OPERATIONS" default:"insert,update,replace,delete"`
	// Pipeline is an Extended JSON array of stages for the change stream: $match, $project, $addFields, $set, $unset,
	// $replaceRoot and $replaceWith that keep _id, operationType, documentKey and clusterTime.
	Pipeline string `envconfig:"PIPELINE"`
	// The paths are dotted and lead into the document. Where there is no aggregate id, documentKey._id takes its place.
	AggregateIDPath   string `envconfig:"AGGREGATE_ID_PATH" default:"aggregateId"`
	EventTypePath     string `envconfig:"EVENT_TYPE_PATH" default:"type"`
	VersionPath       string `envconfig:"VERSION_PATH" default:"version"`
	CorrelationIDPath string `envconfig:"CORRELATION_ID_PATH"`
	// TraceParentPath leads to a W3C traceparent in the document: the trace in which the event was made goes on.
	TraceParentPath string `envconfig:"TRACE_PARENT_PATH"`
	// FullDocument is the change stream's option for updates: updateLookup, whenAvailable, required, or default (none).
	FullDocument string `envconfig:"FULL_DOCUMENT" default:"updateLookup"`
	// BeforeChange is the change stream's fullDocumentBeforeChange: whenAvailable, required, or off. A delete finds its
	// aggregate in the pre-image, where the collection keeps them.
	BeforeChange string `envconfig:"FULL_DOCUMENT_BEFORE_CHANGE" default:"whenAvailable"`

	// LeaseDuration is the blob lease's: 15s to 60s, Azure's bounds.
	LeaseDuration time.Duration `envconfig:"LEASE_DURATION" default:"15s"`
	// HeartbeatInterval is the time between two checkpoints.
	HeartbeatInterval time.Duration `envconfig:"HEARTBEAT_INTERVAL" default:"1s"`
	// FenceAfter without a successful checkpoint, counted from before the request, the leader stops.
	FenceAfter time.Duration `envconfig:"FENCE_AFTER" default:"4s"`
	// TakeoverAfter without a new checkpoint a standby breaks the lease and leads.
	TakeoverAfter time.Duration `envconfig:"TAKEOVER_AFTER" default:"6s"`
	// StandbyPoll is the time between two looks of a standby.
	StandbyPoll time.Duration `envconfig:"STANDBY_POLL" default:"1s"`
	// LeaseTakeover is break, or expiry: wait until a silent leader's lease runs out.
	LeaseTakeover string `envconfig:"LEASE_TAKEOVER" default:"break"`

	// SessionKey is aggregate (each its own session) or bucket:N (all of them share N). It cannot be changed under way: the
	// checkpoint holds it, and another one is refused.
	SessionKey envelope.SessionKey `envconfig:"SESSION_KEY" default:"aggregate"`
	// PublishLanes is how many batches are outstanding at once to begin with, each of other aggregates than all the others.
	PublishLanes int `envconfig:"PUBLISH_LANES" default:"16"`
	// PublishLanesMax is up to how many there may be, where there is something to send and the way to Service Bus carries
	// it: more are used while acknowledgements come fast, fewer when they come late or Service Bus is busy.
	PublishLanesMax int `envconfig:"PUBLISH_LANES_MAX" default:"256"`
	// BatchScope is session (one session a batch: right for every entity) or mixed (faster with many small aggregates;
	// not for partitioned entities).
	BatchScope string `envconfig:"BATCH_SCOPE" default:"session"`
	// BatchMessages is the most messages in a batch; the broker's limit on bytes holds besides.
	BatchMessages int `envconfig:"BATCH_MESSAGES" default:"500"`
	// MessageFormat is json (canonical Extended JSON) or bson (the server's bytes).
	MessageFormat string `envconfig:"MESSAGE_FORMAT" default:"json"`
	// OnOversize is what happens to an event that is too large for a message: fail (the stream stops), or claimcheck (its
	// body goes to a blob in ClaimContainer, which the message names; created where missing and allowed).
	OnOversize     string `envconfig:"ON_OVERSIZE" default:"fail"`
	ClaimContainer string `envconfig:"CLAIM_CHECK_CONTAINER" default:"claim-checks"`
	// MaxInFlightEvents and MaxInFlightBytes bound what has been read and not yet acknowledged. Beyond them reading waits.
	MaxInFlightEvents int64 `envconfig:"MAX_IN_FLIGHT_EVENTS" default:"5000"`
	MaxInFlightBytes  int64 `envconfig:"MAX_IN_FLIGHT_BYTES" default:"16777216"`

	// StallAfter without an acknowledgement while events wait, or without an answer of MongoDB, the leader steps down: another
	// replica may fare better. 0 means never.
	StallAfter time.Duration `envconfig:"STALL_AFTER" default:"60s"`
	// ShutdownTimeout is how long a stop may take to send what is in flight.
	ShutdownTimeout time.Duration `envconfig:"SHUTDOWN_TIMEOUT" default:"20s"`
	// HTTPAddr serves /livez, /readyz, /metrics and /status; empty serves nothing.
	HTTPAddr string     `envconfig:"HTTP_ADDR" default:":8080"`
	LogLevel slog.Level `envconfig:"LOG_LEVEL" default:"info"`
	// StatusInterval is the time between two log records of the status, which alerts are made of; 0 writes none.
	StatusInterval time.Duration `envconfig:"STATUS_INTERVAL" default:"15s"`
}

// LoadConfig reads the settings of a process with one stream from the environment; [LoadStreams] those of any. The error
// is a [settings.Problems] with every problem found.
func LoadConfig() (Config, error) {
	configs, err := LoadStreams()
	if err == nil && len(configs) > 1 {
		err = settings.Problems{errors.New("STREAMS: names several streams")}
	}
	return configs[0], err
}

// Validate reports every problem and every contradiction, joined. No message holds a secret.
func (c *Config) Validate() error {
	p := &problems{}
	p.join(settings.CheckMongoURI("MONGODB_URI", c.MongoURI))
	p.join(c.ServiceBus.Validate())
	p.require((c.Topic == "") != (c.Queue == ""), "SERVICE_BUS_TOPIC, SERVICE_BUS_QUEUE: set exactly one of them")
	p.join(c.Blob.Validate())
	p.container("BLOB_CONTAINER", c.Container)
	p.require(len(c.Stream) <= 256 && !strings.ContainsAny(c.Stream, "\n\\"),
		"STREAM_NAME: must have at most 256 characters, and neither a newline nor a backslash")

	if c.StartFrom == "snapshot" {
		p.add("START_FROM: snapshot is not available yet; begin with latest or timestamp, and carry what is there already over by hand")
	} else {
		p.choice("START_FROM", c.StartFrom, "latest", "timestamp")
	}
	p.require(c.StartFrom != "timestamp" || !c.StartAt.IsZero(), "START_AT: is required with START_FROM=timestamp")
	p.require(c.StartFrom == "timestamp" || c.StartAt.IsZero(), "START_AT: has no meaning without START_FROM=timestamp")
	p.require(c.StartAt.IsZero() || (c.StartAt.Unix() > 0 && c.StartAt.Unix() <= math.MaxUint32),
		"START_AT: must be a time from 1970 to 2106, which is what MongoDB can express")
	if c.OnHistoryLost == "snapshot" {
		p.add("ON_HISTORY_LOST: snapshot is not available yet; use fail, and decide then, or latest")
	} else {
		p.choice("ON_HISTORY_LOST", c.OnHistoryLost, "fail", "latest")
	}
	p.require(len(c.Operations) > 0, "OPERATIONS: must name at least one operation")
	for _, o := range c.Operations {
		p.require(o.Known(), "OPERATIONS: %q is none of insert, update, replace, delete", o)
	}
	if _, err := changes.ParsePipeline(c.Pipeline); err != nil {
		p.add("PIPELINE: %w", err)
	}
	p.require(c.AggregateIDPath != "", "AGGREGATE_ID_PATH: must not be empty; use _id for the document's own id")
	p.choice("FULL_DOCUMENT", c.FullDocument, "default", "updateLookup", "whenAvailable", "required")
	p.choice("FULL_DOCUMENT_BEFORE_CHANGE", c.BeforeChange, "off", "whenAvailable", "required")

	c.validateLeadership(p)

	p.atLeast("PUBLISH_LANES", int64(c.PublishLanes), 1)
	p.require(c.PublishLanesMax >= c.PublishLanes, "PUBLISH_LANES_MAX: must be at least PUBLISH_LANES (%d; it is %d)",
		c.PublishLanes, c.PublishLanesMax)
	p.require(c.PublishLanesMax <= 1024, "PUBLISH_LANES_MAX: must be at most 1024 (it is %d)", c.PublishLanesMax)
	p.choice("BATCH_SCOPE", c.BatchScope, "session", "mixed")
	p.atLeast("BATCH_MESSAGES", int64(c.BatchMessages), 1)
	p.require(c.BatchMessages <= 4500, "BATCH_MESSAGES: must be at most 4500, what Service Bus Standard takes in a batch")
	p.choice("MESSAGE_FORMAT", c.MessageFormat, "json", "bson")
	p.choice("ON_OVERSIZE", c.OnOversize, "claimcheck", "fail")
	if c.OnOversize == "claimcheck" {
		p.container("CLAIM_CHECK_CONTAINER", c.ClaimContainer)
	}
	p.require(c.ClaimContainer != c.Container || c.OnOversize != "claimcheck",
		"CLAIM_CHECK_CONTAINER: must not be BLOB_CONTAINER (%s): old claim checks are deleted there, and checkpoints never may be", c.Container)
	p.atLeast("MAX_IN_FLIGHT_EVENTS", c.MaxInFlightEvents, 1)
	p.require(c.MaxInFlightEvents <= 1_000_000, "MAX_IN_FLIGHT_EVENTS: must be at most 1000000 (it is %d)", c.MaxInFlightEvents)
	p.atLeast("MAX_IN_FLIGHT_BYTES", c.MaxInFlightBytes, 1)
	p.require(c.StallAfter == 0 || c.StallAfter >= time.Second, "STALL_AFTER: must be at least 1s, or 0, which means never (it is %v)", c.StallAfter)
	p.positive("SHUTDOWN_TIMEOUT", c.ShutdownTimeout)
	p.require(c.StatusInterval >= 0, "STATUS_INTERVAL: must not be negative; 0 turns it off")
	return p.joined()
}

// validateLeadership keeps every pair of times far enough apart for a request to storage to fit in between.
func (c *Config) validateLeadership(p *problems) {
	const (
		roundTrip = 500 * time.Millisecond
		shortest  = 50 * time.Millisecond // between two requests to storage
	)
	p.require(c.LeaseDuration >= 15*time.Second && c.LeaseDuration <= 60*time.Second && c.LeaseDuration%time.Second == 0,
		"LEASE_DURATION: must be a whole number of seconds from 15s to 60s, Azure's bounds (it is %v)", c.LeaseDuration)
	p.require(c.HeartbeatInterval >= shortest, "HEARTBEAT_INTERVAL: must be at least %v (it is %v)", shortest, c.HeartbeatInterval)
	p.require(c.StandbyPoll >= shortest, "STANDBY_POLL: must be at least %v (it is %v)", shortest, c.StandbyPoll)
	p.require(c.HeartbeatInterval+roundTrip <= c.FenceAfter,
		"FENCE_AFTER: must exceed HEARTBEAT_INTERVAL (%v) by at least %v (it is %v)", c.HeartbeatInterval, roundTrip, c.FenceAfter)
	p.require(c.FenceAfter+roundTrip <= c.TakeoverAfter,
		"TAKEOVER_AFTER: must exceed FENCE_AFTER (%v) by at least %v (it is %v), or a standby would lead beside a leader "+
			"that may still send", c.FenceAfter, roundTrip, c.TakeoverAfter)
	p.require(c.TakeoverAfter <= c.LeaseDuration,
		"TAKEOVER_AFTER: must not exceed LEASE_DURATION (%v) (it is %v)", c.LeaseDuration, c.TakeoverAfter)
	p.require(c.StandbyPoll < c.TakeoverAfter, "STANDBY_POLL: must be below TAKEOVER_AFTER (%v) (it is %v)", c.TakeoverAfter, c.StandbyPoll)
	p.choice("LEASE_TAKEOVER", c.LeaseTakeover, "break", "expiry")
}

func (c *Config) entity() string { return c.Topic + c.Queue } // exactly one is set

func (c *Config) format() envelope.Format {
	if c.MessageFormat == "bson" {
		return envelope.BSON
	}
	return envelope.JSON
}

// fullDocument is a setting as the driver's option; the words for "leave it out" are empty there.
func fullDocument(setting string) options.FullDocument {
	if setting == "default" || setting == "off" {
		return ""
	}
	return options.FullDocument(setting)
}
