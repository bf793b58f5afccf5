// Package checkpoint stores how far a stream has been published and who leads it: one object per
// stream, with one JSON record, leased by the leader. It is a blob with the lease of Blob storage
// (blob.go), or an object of any [store.Store] that also holds the lease (stored_lease.go).
//
// Guaranteed: a record is only replaced by the holder of the lease, and only if no other client
// replaced it since that holder last read it (lease id and tag on every write). Therefore its epoch
// never goes back. The epoch of a copy is older: an operator who restores a lost record from a copy
// must raise its epoch above those of all leaders since the copy.
//
// A stream that has had a leader has a marker beside its checkpoint, in an object of its own. So
// even a process that has just started can distinguish a deleted checkpoint from one that never
// existed.
//
// Not guaranteed: that the holder of the lease still runs; package leader handles that. Nor that a
// deleted container is distinguished from a new one: marker and checkpoint are deleted with it.
// Only soft delete of containers protects against that; a producer that creates a checkpoint logs a
// warning.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// The versions of the record's schema. A record is written in the oldest schema that can express
// it, so that an earlier release can take over if it could continue.
const (
	schemaTokens  = 1 // positions are sortable tokens
	schemaCounted = 2 // positions are counted: a release that cannot count must not lead
	schemaRewound = 3 // the stream was rewound: a release without generations would send what the broker drops
	// positions have another version than the tokens: a release that takes tokens for positions
	// would start different ones
	schemaTranslated = 4
	// equal numbers in ids have the same text: a release with a text for each type would split
	// their changes into several sessions
	schemaNumbers = 5
	// a snapshot is being published: a release that does not know of it would publish changes of
	// documents that the snapshot has not reached, and never the documents
	schemaSnapshot = 6
	// the stream has left this store: a release that does not know of moves would lead with an old
	// position
	schemaMoved = 7
	// Schema is the newest schema that this package reads.
	Schema = schemaMoved
)

// ErrUnreadable reports a blob without a record of a known schema. It is never overwritten.
var ErrUnreadable = errors.New("not a checkpoint that this release can read")

// Progress is how far a stream has been published: everything up to and including ResumeToken is in
// Service Bus.
type Progress struct {
	// ResumeToken is the change stream's token as the server returned it; empty before the first
	// one.
	ResumeToken bson.Raw
	// AfterInvalidate reports whether ResumeToken belongs to an invalidate event: reading continues
	// with startAfter.
	AfterInvalidate bool
	// Position is the token as comparable text if tokens are sortable, in the token version with
	// which the stream began; otherwise an ordinal.
	Position string
	// Translated reports whether positions have, or are about to have, another version than the
	// tokens.
	Translated bool
	// Settings is a hash of the settings that decide which events are counted; empty if positions
	// are tokens.
	Settings string
	// ClusterTime is the cluster time of the last event; zero if unknown.
	ClusterTime bson.Timestamp
	// Published counts the events acknowledged since the stream began.
	Published int64
	// Backfill is the snapshot that is published within the stream; nil without one.
	Backfill *Backfill
}

// Form returns the token version of the stream's positions; empty if it has none.
func (p Progress) Form() string {
	if p.Backfill != nil && p.Backfill.Form != "" {
		return p.Backfill.Form
	}
	return envelope.TokenForm(p.Position)
}

// Record is the content of the blob.
type Record struct {
	Stream string
	// Epoch is the fencing token. It increases at each acquisition of leadership, and never
	// decreases.
	Epoch int64
	// Leader is the instance that wrote the record last.
	Leader string
	// SessionKey is the session key with which everything so far has been published.
	SessionKey envelope.SessionKey
	// Fingerprint describes the settings with which everything so far has been published.
	Fingerprint MappingFingerprint
	// AcceptedAt is the position at which another fingerprint was last accepted: everything before
	// it was published with earlier settings. It is empty if they never changed, or if an earlier
	// release wrote the record since.
	AcceptedAt string
	// Generation increases when the stream is rewound to be published again. It is part of every
	// MessageId.
	Generation int64
	Progress   Progress
	// MovedTo is the store that the checkpoint was moved to: this record stays behind. It is empty
	// for a record with which a replica can lead.
	MovedTo string
	// HeartbeatAt is the writer's wall clock, for operators, and the writer recognises its own
	// record by it. It is never compared with another clock.
	HeartbeatAt time.Time
}

type wireRecord struct {
	Schema          int                 `json:"schema"`
	Stream          string              `json:"stream"`
	Epoch           int64               `json:"epoch"`
	Leader          string              `json:"leader"`
	SessionKey      string              `json:"sessionKey,omitempty"` // absent: aggregate
	Generation      int64               `json:"generation,omitempty"`
	Fingerprint     *MappingFingerprint `json:"reading,omitempty"` // absent: an earlier release wrote the record
	AcceptedAt      string              `json:"acceptedAt,omitempty"`
	ResumeToken     json.RawMessage     `json:"resumeToken"`
	AfterInvalidate bool                `json:"afterInvalidate,omitempty"`
	Position        string              `json:"position"`
	Translated      bool                `json:"translated,omitempty"` // implied by schema 4
	Settings        string              `json:"settings,omitempty"`
	ClusterTime     *wireTimestamp      `json:"clusterTime"`
	Published       int64               `json:"published"`
	Snapshot        *wireBackfill       `json:"snapshot,omitempty"`
	HeartbeatAt     time.Time           `json:"heartbeatAt"`
	MovedTo         string              `json:"movedTo,omitempty"`
}

type wireTimestamp struct {
	T uint32 `json:"t"`
	I uint32 `json:"i"`
}

// MarshalJSON encodes the record. The token is canonical Extended JSON.
func (r Record) MarshalJSON() ([]byte, error) {
	w := wireRecord{
		Schema: schemaTokens, Stream: r.Stream, Epoch: r.Epoch, Leader: r.Leader, Generation: r.Generation, AcceptedAt: r.AcceptedAt,
		AfterInvalidate: r.Progress.AfterInvalidate, Position: r.Progress.Position, Settings: r.Progress.Settings, Published: r.Progress.Published,
		HeartbeatAt: r.HeartbeatAt.UTC(), MovedTo: r.MovedTo,
	}
	if w.Settings != "" {
		w.Schema = schemaCounted
	}
	if w.Generation > 0 {
		w.Schema = schemaRewound
	}
	if r.Progress.Translated {
		w.Schema = schemaTranslated
	}
	if r.Fingerprint.Numbers != "" {
		w.Schema = schemaNumbers
	}
	var err error
	if b := r.Progress.Backfill; b != nil {
		w.Schema = schemaSnapshot
		if w.Snapshot, err = b.wire(); err != nil {
			return nil, fmt.Errorf("write snapshot: %w", err)
		}
	}
	if r.MovedTo != "" {
		w.Schema = schemaMoved
	}
	w.Translated = r.Progress.Translated && w.Schema > schemaTranslated
	if r.SessionKey != (envelope.SessionKey{}) {
		w.SessionKey = r.SessionKey.String()
	}
	if r.Fingerprint != (MappingFingerprint{}) {
		w.Fingerprint = &r.Fingerprint
	}
	if w.ResumeToken, err = toJSON(r.Progress.ResumeToken); err != nil {
		return nil, fmt.Errorf("write resume token: %w", err)
	}
	if t := r.Progress.ClusterTime; !t.IsZero() {
		w.ClusterTime = new(wireTimestamp(t))
	}
	return json.Marshal(w)
}

// UnmarshalJSON decodes a record. The error wraps [ErrUnreadable] and gives the reason.
func (r *Record) UnmarshalJSON(text []byte) error {
	var w wireRecord
	if err := json.Unmarshal(text, &w); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	switch {
	case w.Schema < 1:
		return fmt.Errorf("%w: it names no schema", ErrUnreadable)
	case w.Schema > Schema:
		return fmt.Errorf("%w: it has schema %d, and the newest known here is %d: a newer release wrote it",
			ErrUnreadable, w.Schema, Schema)
	case w.Stream == "" || w.Epoch < 0 || w.Generation < 0:
		return fmt.Errorf("%w: stream %q with epoch %d and generation %d", ErrUnreadable, w.Stream, w.Epoch, w.Generation)
	}
	*r = Record{
		Stream: w.Stream, Epoch: w.Epoch, Leader: w.Leader, Generation: w.Generation, AcceptedAt: w.AcceptedAt, HeartbeatAt: w.HeartbeatAt,
		MovedTo: w.MovedTo,
		Progress: Progress{
			AfterInvalidate: w.AfterInvalidate, Position: w.Position, Settings: w.Settings, Published: w.Published,
			Translated: w.Schema == schemaTranslated || w.Translated,
		},
	}
	if w.Fingerprint != nil {
		r.Fingerprint = *w.Fingerprint
	}
	if w.SessionKey != "" {
		if err := r.SessionKey.UnmarshalText([]byte(w.SessionKey)); err != nil {
			return fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	if string(w.ResumeToken) != "null" {
		if err := fromJSON(w.ResumeToken, &r.Progress.ResumeToken); err != nil {
			return fmt.Errorf("%w: resume token: %w", ErrUnreadable, err)
		}
	}
	if w.Snapshot != nil {
		var err error
		if r.Progress.Backfill, err = w.Snapshot.read(); err != nil {
			return fmt.Errorf("%w: snapshot: %w", ErrUnreadable, err)
		}
	}
	if w.ClusterTime != nil {
		r.Progress.ClusterTime = bson.Timestamp(*w.ClusterTime)
	}
	return nil
}
