package plan

import (
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// SDK is the value of SESSION_RECEIVER with which the SDK accepts a projector's sessions.
const SDK = "sdk"

// The projections that projectors run.
const (
	Timeline = "timeline" // one document for each aggregate, guarded
	Ledger   = "ledger"   // several documents, in transactions
)

// Collections are what the streams of a run watch.
var Collections = []string{"events", "returns"}

// Database is the database of the collections.
const Database = "shop"

// Settings are how a run is configured.
type Settings struct {
	Producers  int `json:"producers"`
	Projectors int `json:"projectors"`
	Streams    int `json:"streams"` // of a producer
	// Shared means that several streams carry events of one aggregate: those of the workload, and
	// of poison.
	Shared bool `json:"shared,omitempty"`
	// SessionKey is SESSION_KEY.
	SessionKey    envelope.SessionKey `json:"sessionKey,omitzero"`
	Lanes         int                 `json:"lanes"`
	BatchMessages int                 `json:"batchMessages"`
	Scope         string              `json:"scope"`
	Format        string              `json:"format"`
	Takeover      string              `json:"takeover"`
	MaxInFlight   int64               `json:"maxInFlight"`
	Sessions      int                 `json:"sessions"`
	Connections   int                 `json:"connections"`
	ReceiveBatch  int                 `json:"receiveBatch"`
	LockDuration  Duration            `json:"lockDuration"`
	MaxHold       Duration            `json:"maxHold"`
	Projection    string              `json:"projection"`
	// GapWait is VERSION_GAP_WAIT; 0: versions are not judged.
	GapWait Duration `json:"gapWait"`
	// VersionFirst is VERSION_FIRST.
	VersionFirst int64 `json:"versionFirst,omitempty"`
	// Partitioned means that the topic is partitioned.
	Partitioned bool `json:"partitioned,omitempty"`
	// BodyKiB is how large events are; 0: small. A projector's session has room for two batches of
	// BodiesInHand of them (MAX_IN_FLIGHT_BYTES).
	BodyKiB      int `json:"bodyKiB,omitempty"`
	BodiesInHand int `json:"bodiesInHand,omitempty"`
	// Deliveries is the subscription's MaxDeliveryCount, and so MAX_DELIVERIES, unless that is
	// wrong; TimeToLive is how long messages live there. 0: neither is ever used up. Where
	// Deliveries is set, it is not known beforehand which aggregates are parked.
	Deliveries      int      `json:"deliveries,omitempty"`
	WrongDeliveries bool     `json:"wrongDeliveries,omitempty"`
	TimeToLive      Duration `json:"timeToLive,omitzero"`
	// UndecidedAfter is UNDECIDED_AFTER, and ApplyTimeout APPLY_TIMEOUT; 0: the default.
	UndecidedAfter Duration `json:"undecidedAfter,omitzero"`
	ApplyTimeout   Duration `json:"applyTimeout,omitzero"`
	// WatchProcesses is WATCH_PROCESSES.
	WatchProcesses bool `json:"watchProcesses,omitempty"`
	// Program means that the projection is a program of its own beside each projector
	// (PROJECTION_URL).
	Program bool `json:"program,omitempty"`
	// Healthy is how many aggregates have an event every few seconds, and nothing that goes wrong
	// with them.
	Healthy int `json:"healthy,omitempty"`
	// Receiver is SESSION_RECEIVER. The SDK holds mutexes while it waits for the network, and
	// virtual time does not pass while a goroutine waits for a mutex: where it accepts the
	// sessions, each has a connection of its own, and a projector's way to Service Bus does not
	// hang while it starts or recovers.
	Receiver string `json:"receiver"`
	// The round trips. Without any, everything takes no time and a fault never meets anything in
	// flight. Service Bus has none: the operator's commands use the SDK.
	MongoTrip Duration `json:"mongoTrip"`
	// MongoVersion is the version that MongoDB acts as, such as "6.0"; empty: the newest.
	MongoVersion string `json:"mongoVersion,omitempty"`
	// TokenVersion is the initial version of MongoDB's resume tokens; 0 is 2.
	TokenVersion int      `json:"tokenVersion,omitempty"`
	BlobTrip     Duration `json:"blobTrip"`
	// Store is CHECKPOINT_STORE: [StoreMongoDB], or empty for Blob storage.
	Store string `json:"store,omitempty"`
	// OnRefused is ON_REFUSED; empty: it does not matter.
	OnRefused string `json:"onRefused,omitempty"`
	// OnReplaced is ON_COLLECTION_REPLACED; empty: it does not matter.
	OnReplaced string `json:"onReplaced,omitempty"`
	// Documents means that events are changes of documents, and names what determines their
	// aggregate: [Images], [RequiredImages], [Keys] or
	// [Compound]. Empty: events are documents that are
	// inserted and never changed.
	Documents string `json:"documents,omitempty"`
	// Snapshot is how streams have one: [SnapshotStart] or [SnapshotHeal]. Empty: they have none.
	// SnapshotChunk is SNAPSHOT_CHUNK, and SnapshotRate SNAPSHOT_RATE.
	Snapshot      string `json:"snapshot,omitempty"`
	SnapshotChunk int    `json:"snapshotChunk,omitempty"`
	SnapshotRate  int    `json:"snapshotRate,omitempty"`
	// PackEvents is PACK_EVENTS and PackBytes PACK_BYTES; 0: PACK=off.
	PackEvents int `json:"packEvents,omitempty"`
	PackBytes  int `json:"packBytes,omitempty"`
}

// StreamNames returns the names of the run's streams.
func (s Settings) StreamNames() (names []string) {
	for _, collection := range Collections[:s.Streams] {
		names = append(names, Database+"."+collection)
	}
	return names
}

// ProducerNames returns the names of the replicas of the producer.
func (s Settings) ProducerNames() (names []string) {
	for n := range s.Producers {
		names = append(names, fmt.Sprintf("producer-%c", 'a'+n))
	}
	return names
}

// ProjectorNames returns the names of the replicas of the projector.
func (s Settings) ProjectorNames() (names []string) {
	for n := range s.Projectors {
		names = append(names, ProjectorName(n))
	}
	return names
}

// ProjectorName returns the name of one replica of the projector, from 0.
func ProjectorName(n int) string { return fmt.Sprintf("projector-%d", n) }

func seconds(n int) Duration { return Duration{time.Duration(n) * time.Second} }
