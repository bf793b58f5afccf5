package producer

import (
	"math"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	mongodbstore "github.com/sluice-cdc/sluice/producer/store/mongodb"
	"github.com/sluice-cdc/sluice/shared/settings"
)

// Validate reports every problem and every contradiction, joined. No message holds a secret.
func (c *Config) Validate() error {
	var p settings.Checks
	p.Add(settings.CheckMongoURI("MONGODB_URI", c.MongoURI),
		settings.MongoDatabase("MONGODB_DATABASE", c.Database), settings.MongoCollection("MONGODB_COLLECTION", c.Collection))
	p.Add(c.ServiceBus.Validate())
	p.Require((c.Topic == "") != (c.Queue == ""), "SERVICE_BUS_TOPIC, SERVICE_BUS_QUEUE: set exactly one of them")
	p.Add(c.ServiceBus.ValidateAdministration(c.Administration))
	if c.usesBlob() {
		p.Add(c.Blob.Validate())
	}
	c.validateStore(&p)
	p.Require(len(c.Stream) <= 256 && !strings.ContainsAny(c.Stream, "\n\\"),
		"STREAM_NAME: must have at most 256 characters, and neither a newline nor a backslash")

	p.Add(settings.OneOf("START_FROM", c.StartFrom, "latest", "timestamp", "snapshot", "checkpoint"))
	p.Require(c.StartFrom != "timestamp" || !c.StartAt.IsZero(), "START_AT: is required with START_FROM=timestamp: an RFC 3339 time (for example 2026-01-31T12:00:00Z)")
	p.Require(c.StartFrom == "timestamp" || c.StartAt.IsZero(), "START_AT: has no meaning without START_FROM=timestamp")
	p.Require(c.StartAt.IsZero() || (c.StartAt.Unix() > 0 && c.StartAt.Unix() <= math.MaxUint32),
		"START_AT: must be a time from 1970 to 2106, which is what MongoDB can express")
	p.Add(settings.OneOf("ON_HISTORY_LOST", c.OnHistoryLost, "fail", "latest", "snapshot"))
	c.validateSnapshots(&p)
	p.Add(settings.OneOf("ON_COLLECTION_REPLACED", c.OnCollectionReplaced, "fail", "continue"))
	p.Require(len(c.Operations) > 0, "OPERATIONS: must name at least one operation")
	for _, o := range c.Operations {
		p.Require(o.Known(), "OPERATIONS: %q is not one of insert, update, replace, delete", o)
	}
	if _, err := changes.ParsePipeline(c.Pipeline); err != nil {
		p.Addf("PIPELINE: %w", err)
	}
	p.Require(c.AggregateIDPath != "", "AGGREGATE_ID_PATH: must not be empty; use _id for the document's own id")
	p.Add(settings.OneOf("ON_UNKNOWN_AGGREGATE", c.OnUnknownAggregate, "fail", "documentKey"))
	p.Add(settings.OneOf("FULL_DOCUMENT", c.FullDocument, "default", "updateLookup", "whenAvailable", "required"))
	p.Add(settings.OneOf("FULL_DOCUMENT_BEFORE_CHANGE", c.BeforeChange, "off", "whenAvailable", "required"))

	c.validateLeadership(&p)

	p.Add(settings.AtLeast("PUBLISH_LANES", c.PublishLanes, 1))
	p.Require(c.PublishLanesMax >= c.PublishLanes, "PUBLISH_LANES_MAX: must be at least PUBLISH_LANES (%d; it is %d)",
		c.PublishLanes, c.PublishLanesMax)
	p.Add(settings.AtMost("PUBLISH_LANES_MAX", c.PublishLanesMax, 1024))
	p.Add(settings.OneOf("BATCH_SCOPE", c.BatchScope, "auto", "session", "mixed"))
	p.Add(settings.AtLeast("BATCH_MESSAGES", c.BatchMessages, 1))
	p.Require(c.BatchMessages <= 4500, "BATCH_MESSAGES: must be at most 4500, what Service Bus Standard takes in a batch")
	p.Add(settings.OneOf("MESSAGE_FORMAT", c.MessageFormat, "json", "bson"))
	p.Add(settings.OneOf("PACK", c.Pack, "off", "auto"))
	p.Require(c.Pack != "auto" || c.MessageFormat == "json", "PACK: auto needs MESSAGE_FORMAT=json")
	p.Add(settings.Between("PACK_EVENTS", c.PackEvents, 2, 1000))
	p.Add(settings.Between("PACK_BYTES", c.PackBytes, 1000, 900_000))
	p.Add(settings.OneOf("ON_OVERSIZE", c.OnOversize, "claimcheck", "fail"))
	p.Add(settings.OneOf("ON_REFUSED", c.OnRefused, "fail", "park"))
	p.Require(c.RefusedAfter > 0, "REFUSED_AFTER: must be above zero (it is %v)", c.RefusedAfter)
	if c.usesClaimContainer() {
		p.Add(settings.ContainerName("CLAIM_CHECK_CONTAINER", c.ClaimContainer))
	}
	p.Require(c.ClaimContainer != c.CheckpointContainer || !c.usesClaimContainer() || !c.checkpointsInBlob(),
		"CLAIM_CHECK_CONTAINER: must not be BLOB_CONTAINER (%s): old claim checks are deleted there, and checkpoints never may be", c.CheckpointContainer)
	p.Add(settings.Between("MAX_IN_FLIGHT_EVENTS", c.MaxInFlightEvents, 1, 1_000_000))
	p.Add(settings.AtLeast("MAX_IN_FLIGHT_BYTES", c.MaxInFlightBytes, 1))
	p.Require(c.StallAfter == 0 || c.StallAfter >= time.Second, "STALL_AFTER: must be at least 1s, or 0, which means never (it is %v)", c.StallAfter)
	p.Require(c.ShutdownTimeout > 0, "SHUTDOWN_TIMEOUT: must be above zero (it is %v)", c.ShutdownTimeout)
	p.Process(c.Process)
	return p.Err()
}

// leaseWithoutExpiry is the default of LEASE_DURATION, which has no meaning for a lease without
// expiry.
const leaseWithoutExpiry = 15 * time.Second

// validateStore checks the settings of the checkpoint store.
func (c *Config) validateStore(p *settings.Checks) {
	if c.checkpointsInBlob() {
		p.Add(settings.ContainerName("BLOB_CONTAINER", c.CheckpointContainer))
		return
	}
	p.Require(c.LeaseTakeover != "expiry", "LEASE_TAKEOVER: must be break with CHECKPOINT_STORE=%s: its leases do not expire", c.CheckpointStore)
	p.Require(c.LeaseDuration == leaseWithoutExpiry, "LEASE_DURATION: has no meaning with CHECKPOINT_STORE=%s: its leases do not expire", c.CheckpointStore)
	if c.CheckpointStore != storeMongo {
		return
	}
	p.Add(settings.CheckMongoURI("CHECKPOINT_MONGODB_URI", c.CheckpointMongoURI), settings.MongoDatabase("CHECKPOINT_MONGODB_DATABASE", c.CheckpointMongoDatabase))
	p.Require(c.CheckpointMongoDatabase != c.Database || c.Collection != mongodbstore.Collection,
		"CHECKPOINT_MONGODB_DATABASE: the checkpoint would be in the watched collection %s.%s: every heartbeat would be a change of it", c.Database, c.Collection)
}

// validateSnapshots refuses snapshots that would lose changes or publish them twice.
func (c *Config) validateSnapshots(p *settings.Checks) {
	reader := c.readerConfig(0)
	if c.StartFrom == "snapshot" {
		if err := reader.CheckBackfill(false); err != nil {
			p.Addf("START_FROM=snapshot: %w", err)
		}
	}
	if c.OnHistoryLost == "snapshot" {
		if err := reader.CheckBackfill(true); err != nil {
			p.Addf("ON_HISTORY_LOST=snapshot: %w", err)
		}
	}
	p.Add(settings.Between("SNAPSHOT_CHUNK", c.SnapshotChunk, 1, 100_000))
	p.Add(settings.AtLeast("SNAPSHOT_RATE", c.SnapshotRate, 0))
	p.Add(settings.OneOf("SNAPSHOT_READ_PREFERENCE", c.SnapshotReadPreference, "primary", "secondaryPreferred"))
}

// validateLeadership keeps every pair of times far enough apart for a request to storage to fit in
// between.
func (c *Config) validateLeadership(p *settings.Checks) {
	const (
		roundTrip = 500 * time.Millisecond
		shortest  = 50 * time.Millisecond // between two requests to storage
	)
	p.Require(c.LeaseDuration >= 15*time.Second && c.LeaseDuration <= 60*time.Second && c.LeaseDuration%time.Second == 0,
		"LEASE_DURATION: must be a whole number of seconds from 15s to 60s, Azure's bounds (it is %v)", c.LeaseDuration)
	p.Require(c.HeartbeatInterval >= shortest, "HEARTBEAT_INTERVAL: must be at least %v (it is %v)", shortest, c.HeartbeatInterval)
	p.Require(c.StandbyPoll >= shortest, "STANDBY_POLL: must be at least %v (it is %v)", shortest, c.StandbyPoll)
	p.Require(c.HeartbeatInterval+roundTrip <= c.FenceAfter,
		"FENCE_AFTER: must exceed HEARTBEAT_INTERVAL (%v) by at least %v (it is %v)", c.HeartbeatInterval, roundTrip, c.FenceAfter)
	p.Require(c.FenceAfter+roundTrip <= c.TakeoverAfter,
		"TAKEOVER_AFTER: must exceed FENCE_AFTER (%v) by at least %v (it is %v), or a standby would lead beside a leader "+
			"that may still send", c.FenceAfter, roundTrip, c.TakeoverAfter)
	p.Require(c.TakeoverAfter <= c.LeaseDuration,
		"TAKEOVER_AFTER: must not exceed LEASE_DURATION (%v) (it is %v)", c.LeaseDuration, c.TakeoverAfter)
	p.Require(c.StandbyPoll < c.TakeoverAfter, "STANDBY_POLL: must be below TAKEOVER_AFTER (%v) (it is %v)", c.TakeoverAfter, c.StandbyPoll)
	p.Add(settings.OneOf("LEASE_TAKEOVER", c.LeaseTakeover, "break", "expiry"))
}
