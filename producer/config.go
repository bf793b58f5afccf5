package producer

import (
	"log/slog"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// Config is every setting of the producer. [LoadConfig] reads it from the environment.
type Config struct {
	// MongoURI is the source's connection string: a secret. The user needs find and changeStream on the collection.
	MongoURI string `envconfig:"MONGODB_URI" required:"true"`
	// Database and Collection are what is watched.
	Database   string `envconfig:"MONGODB_DATABASE" required:"true"`
	Collection string `envconfig:"MONGODB_COLLECTION" required:"true"`
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
	// The paths are dotted and lead into the document. Where there is no aggregate id, documentKey._id takes its place.
	AggregateIDPath   string `envconfig:"AGGREGATE_ID_PATH" default:"aggregateId"`
	EventTypePath     string `envconfig:"EVENT_TYPE_PATH" default:"type"`
	VersionPath       string `envconfig:"VERSION_PATH" default:"version"`
	CorrelationIDPath string `envconfig:"CORRELATION_ID_PATH"`
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

	// PublishLanes is how many batches are outstanding at once; an aggregate always uses the same lane.
	PublishLanes int `envconfig:"PUBLISH_LANES" default:"16"`
	// BatchScope is session (one session a batch: right for every entity) or mixed (faster with many small aggregates;
	// not for partitioned entities).
	BatchScope string `envconfig:"BATCH_SCOPE" default:"session"`
	// BatchMessages is the most messages in a batch; the broker's limit on bytes holds besides.
	BatchMessages int `envconfig:"BATCH_MESSAGES" default:"500"`
	// MessageFormat is json (canonical Extended JSON) or bson (the server's bytes).
	MessageFormat string `envconfig:"MESSAGE_FORMAT" default:"json"`
	// MaxInFlightEvents and MaxInFlightBytes bound what has been read and not yet acknowledged. Beyond them reading waits.
	MaxInFlightEvents int64 `envconfig:"MAX_IN_FLIGHT_EVENTS" default:"10000"`
	MaxInFlightBytes  int64 `envconfig:"MAX_IN_FLIGHT_BYTES" default:"16777216"`

	// StallAfter without an acknowledgement while events wait, the leader steps down: another replica may fare better. 0
	// means never.
	StallAfter time.Duration `envconfig:"STALL_AFTER" default:"60s"`
	// ShutdownTimeout is how long a stop may take to send what is in flight.
	ShutdownTimeout time.Duration `envconfig:"SHUTDOWN_TIMEOUT" default:"20s"`
	// HTTPAddr serves /livez, /readyz, /metrics and /status; empty serves nothing.
	HTTPAddr string     `envconfig:"HTTP_ADDR" default:":8080"`
	LogLevel slog.Level `envconfig:"LOG_LEVEL" default:"info"`
	// StatusInterval is the time between two log records of the status, which alerts are made of; 0 writes none.
	StatusInterval time.Duration `envconfig:"STATUS_INTERVAL" default:"15s"`
}

// LoadConfig reads the settings from the environment. The error is a [settings.Problems] with every problem found.
func LoadConfig() (Config, error) {
	var c Config
	err := settings.Load(&c)
	if c.Stream == "" {
		c.Stream = c.Database + "." + c.Collection
	}
	return c, err
}

// Validate reports every problem and every contradiction, joined. No message holds a secret.
func (c *Config) Validate() error {
	p := &problems{}
	p.join(settings.CheckMongoURI("MONGODB_URI", c.MongoURI))
	p.join(c.ServiceBus.Validate())
	p.require((c.Topic == "") != (c.Queue == ""), "SERVICE_BUS_TOPIC, SERVICE_BUS_QUEUE: set exactly one of them")
	p.join(c.Blob.Validate())
	p.require(c.Container != "", "BLOB_CONTAINER: must not be empty")
	p.require(len(c.Stream) <= 256 && !strings.ContainsAny(c.Stream, "\n\\"),
		"STREAM_NAME: must have at most 256 characters, and neither a newline nor a backslash")

	p.choice("START_FROM", c.StartFrom, "latest", "timestamp")
	p.require(c.StartFrom != "timestamp" || !c.StartAt.IsZero(), "START_AT: is required with START_FROM=timestamp")
	p.require(c.StartFrom == "timestamp" || c.StartAt.IsZero(), "START_AT: has no meaning without START_FROM=timestamp")
	p.choice("ON_HISTORY_LOST", c.OnHistoryLost, "fail", "latest")
	p.require(len(c.Operations) > 0, "OPERATIONS: must name at least one operation")
	for _, o := range c.Operations {
		p.require(o.Known(), "OPERATIONS: %q is none of insert, update, replace, delete", o)
	}
	p.require(c.AggregateIDPath != "", "AGGREGATE_ID_PATH: must not be empty; use _id for the document's own id")
	p.choice("FULL_DOCUMENT", c.FullDocument, "default", "updateLookup", "whenAvailable", "required")
	p.choice("FULL_DOCUMENT_BEFORE_CHANGE", c.BeforeChange, "off", "whenAvailable", "required")

	c.validateLeadership(p)

	p.atLeast("PUBLISH_LANES", int64(c.PublishLanes), 1)
	p.require(c.PublishLanes <= 1024, "PUBLISH_LANES: must be at most 1024")
	p.choice("BATCH_SCOPE", c.BatchScope, "session", "mixed")
	p.atLeast("BATCH_MESSAGES", int64(c.BatchMessages), 1)
	p.require(c.BatchMessages <= 4500, "BATCH_MESSAGES: must be at most 4500, what Service Bus Standard takes in a batch")
	p.choice("MESSAGE_FORMAT", c.MessageFormat, "json", "bson")
	p.atLeast("MAX_IN_FLIGHT_EVENTS", c.MaxInFlightEvents, 1)
	p.atLeast("MAX_IN_FLIGHT_BYTES", c.MaxInFlightBytes, 1)
	p.require(c.StallAfter >= 0, "STALL_AFTER: must not be negative; 0 means never (it is %v)", c.StallAfter)
	p.positive("SHUTDOWN_TIMEOUT", c.ShutdownTimeout)
	p.require(c.StatusInterval >= 0, "STATUS_INTERVAL: must not be negative; 0 turns it off")
	return p.joined()
}

// validateLeadership keeps every pair of times far enough apart for a request to storage to fit in between.
func (c *Config) validateLeadership(p *problems) {
	const roundTrip = 500 * time.Millisecond
	p.require(c.LeaseDuration >= 15*time.Second && c.LeaseDuration <= 60*time.Second && c.LeaseDuration%time.Second == 0,
		"LEASE_DURATION: must be a whole number of seconds from 15s to 60s, Azure's bounds (it is %v)", c.LeaseDuration)
	p.positive("HEARTBEAT_INTERVAL", c.HeartbeatInterval)
	p.positive("STANDBY_POLL", c.StandbyPoll)
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
