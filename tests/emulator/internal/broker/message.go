package broker

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"sync/atomic"
	"time"
)

// Payload is a message as its sender sent it. It is shared by every subscription and must not
// change once sent.
type Payload struct {
	MessageID       string
	HasMessageID    bool
	SessionID       string
	HasSessionID    bool // an empty session id is a valid one
	PartitionKey    string
	HasPartitionKey bool
	TimeToLive      time.Duration // 0 means none
	ScheduledAt     time.Time     // zero means now
	Durable         bool
	Priority        uint8
	// DeliveryAnnotations are the sender's, handed on as they came; may be nil.
	DeliveryAnnotations map[string]any
	// Annotations are those of the sender that have no meaning to the broker; may be nil.
	Annotations map[string]any
	// Body is the encoded immutable message, opaque here.
	Body []byte

	carried *carried // nil unless the message was forwarded
}

// carried is the data that a message keeps when it is forwarded.
type carried struct {
	hops     int
	seq      int64 // of its first entity
	dead     *DeadLetter
	modified map[string]any
}

// Token identifies a lock on a message, in RFC 4122 byte order.
type Token [16]byte

var (
	tokenPrefix  = func() (p [8]byte) { _, _ = rand.Read(p[:]); return p }()
	tokenCounter atomic.Uint64
)

// newToken returns a token that is unique in this process and, by its random half, very likely
// across processes.
func newToken() (t Token) {
	copy(t[:], tokenPrefix[:])
	binary.BigEndian.PutUint64(t[8:], tokenCounter.Add(1))
	return t
}

// State of a message, with the service's numbers.
type State int32

// The states.
const (
	Active    State = 0
	Deferred  State = 1
	Scheduled State = 2
)

// DeadLetter is the reason why a message is in a dead-letter queue.
type DeadLetter struct {
	Reason      string
	Description string
	Source      string // the entity it came from
}

// message is one entity's copy. Guarded by the entity's mutex.
type message struct {
	*Payload
	seq         int64 // of the entity, whatever the partition: what came first is lower
	partition   int64 // 0 if there are no partitions
	enqueuedSeq int64 // where it was sent first; 0: that is here
	enqueuedAt  time.Time
	ttl         time.Duration // the sender's, capped by the entity's; 0 means none
	expiresAt   time.Time     // zero means never
	deliveries  uint32        // failed ones
	state       State
	token       Token // of the current lock; zero when not locked
	lockedUntil time.Time
	sess        *session // nil where sessions are not required
	dead        *DeadLetter
	modified    map[string]any
	removed     bool // the fifo's: to be skipped
}

// Delivery is a snapshot of a message handed to a receiver.
type Delivery struct {
	*Payload
	SequenceNumber         int64
	EnqueuedSequenceNumber int64 // of the topic, or of the entity to which the message was sent first; 0: there is no other
	EnqueuedAt             time.Time
	TimeToLive             time.Duration // in effect here: the entity caps the sender's
	DeliveryCount          uint32        // earlier failed deliveries, so 0 at first
	State                  State
	Token                  Token     // zero when the message is not locked
	LockedUntil            time.Time // zero when the message is not locked
	UnderSession           bool      // the session's lock holds, and has an end of its own
	DeadLetter             *DeadLetter
	// Modified are properties set by abandon, defer or dead-letter; may be nil.
	Modified map[string]any
}

// partitionShift: a message's number carries its partition in the upper 16 bits.
const partitionShift = 48

// number returns the sequence number that clients see.
func (m *message) number() int64 { return m.partition<<partitionShift | m.seq }

// first returns the message's number where it was sent first.
func (m *message) first() int64 {
	if m.enqueuedSeq == 0 {
		return m.seq
	}
	return m.enqueuedSeq
}

func (m *message) snapshot() Delivery {
	d := Delivery{
		Payload: m.Payload, SequenceNumber: m.number(),
		EnqueuedAt: m.enqueuedAt, TimeToLive: m.ttl, DeliveryCount: m.deliveries, State: m.state, Token: m.token,
		LockedUntil: m.lockedUntil, UnderSession: m.sess != nil, DeadLetter: m.dead, Modified: m.modified,
	}
	if m.enqueuedSeq != 0 {
		d.EnqueuedSequenceNumber = m.partition<<partitionShift | m.enqueuedSeq
	}
	return d
}

// modify merges properties; the map is replaced, never changed, because snapshots share it.
func (m *message) modify(set map[string]any) {
	if len(set) == 0 {
		return
	}
	merged := make(map[string]any, len(m.modified)+len(set))
	maps.Copy(merged, m.modified)
	maps.Copy(merged, set)
	m.modified = merged
}
