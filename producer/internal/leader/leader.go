// Package leader elects the one producer of a stream that may publish, by the lease of the stream's
// checkpoint.
//
// Guaranteed:
//   - Every term of leadership has an epoch of its own, larger than all before it.
//   - The work of a term runs under a context that ends when leadership can no longer be proven,
//     and is joined before the lease is released or another term begins.
//   - A checkpoint is written only while the lease is held, and only over the record that this
//     leader wrote last.
//
// Not guaranteed: that only one instance acts as a leader at any moment. A process that was frozen
// in the middle of a send may finish it after its successor began. The position guard in the read
// model makes that harmless, not this package.
//
// One conditional write each HeartbeatInterval does three jobs: it is the heartbeat that standbys
// watch, the checkpoint, and the proof that this leader still holds the lease. A leader stops if no
// such write has succeeded for FenceAfter, counted on its own monotonic clock from before the
// request. A standby takes over if it has seen no such write for TakeoverAfter, counted on its own
// monotonic clock. The clocks of two machines are never compared.
package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Records is the record half of a checkpoint. *checkpoint.Checkpoint implements it.
type Records interface {
	Read(ctx context.Context) (checkpoint.Snapshot, error)
	Create(ctx context.Context, r checkpoint.Record) error
	Write(ctx context.Context, r checkpoint.Record, leaseID string, tag store.Tag) (store.Tag, error)
	// NextEpoch returns the epoch of the next leader, which has seen epochs up to seen, and records
	// that the stream has a leader: from then on Create refuses to recreate it.
	NextEpoch(ctx context.Context, seen int64) (int64, error)
}

// Leases is the lease half of a checkpoint. *checkpoint.Checkpoint implements it.
type Leases interface {
	Acquire(ctx context.Context, leaseID string, d time.Duration, tag store.Tag) error
	Renew(ctx context.Context, leaseID string) error
	Release(ctx context.Context, leaseID string) error
	Break(ctx context.Context, tag store.Tag) error
}

var (
	_ Records = (*checkpoint.Checkpoint)(nil)
	_ Leases  = (*checkpoint.Checkpoint)(nil)
)

// The errors with which an election or a term's context ends; see [context.Cause].
var (
	// ErrFenced: no write succeeded for FenceAfter, so a standby may be about to take over.
	ErrFenced = errors.New("leadership could not be proven in time")
	// ErrLost: another replica holds the lease or wrote the record.
	ErrLost = errors.New("leadership is lost")
	// ErrStopTimeout: the work did not finish within StopTimeout of the request to stop.
	ErrStopTimeout = errors.New("work did not finish in time for the stop")
	// ErrStepDown: the work asks for another leader. Work returns an error that wraps it; the
	// election continues.
	ErrStepDown = errors.New("stepping down")
	// ErrVanished: the checkpoint that this instance has read does not exist any more. A new one
	// would start at epoch 1 and forget what has been published, so an operator must decide.
	ErrVanished = errors.New("the checkpoint has been deleted while in use; restart a producer: its error describes what to do")
	// ErrTooLarge: the record is larger than the store permits. No other replica could write it.
	ErrTooLarge = errors.New("the checkpoint store cannot hold the record")
	// ErrNoCheckpoint: there is no checkpoint, and START_FROM=checkpoint does not create one.
	ErrNoCheckpoint = errors.New("the stream has no checkpoint, and START_FROM=checkpoint creates none: waiting for " +
		"`producer token restore`, which creates it from a copy")
	// ErrSessionKey: the stream has been published with another session key. Events of one
	// aggregate would wait in two sessions and be applied out of order; the late ones would be
	// taken for duplicates, and lost.
	ErrSessionKey = errors.New("the stream has been published with another SESSION_KEY")
	// ErrMapping: the stream has been published with settings that assign other aggregates or
	// versions.
	ErrMapping = errors.New("the stream has been published by other settings")
)

// Config holds the settings of an election. The producer's configuration checks the relations
// between the times.
type Config struct {
	Stream            string
	Instance          string
	SessionKey        envelope.SessionKey           // of the work; a record with another one is refused
	Fingerprint       checkpoint.MappingFingerprint // likewise
	LeaseDuration     time.Duration                 // 15 s to 60 s, Azure's limits
	RenewInterval     time.Duration                 // of the lease itself
	HeartbeatInterval time.Duration
	FenceAfter        time.Duration
	TakeoverAfter     time.Duration
	TakeoverByExpiry  bool // never break a lease; wait until it expires
	StandbyPoll       time.Duration
	StopTimeout       time.Duration // for the work to finish what is in progress at a stop
	Store             string        // the checkpoint store's name in the log
	AwaitCheckpoint   bool          // never create a checkpoint; wait until an operator has restored it
	// Yield returns how long to leave a stream without a leader to the other standbys. It is called
	// at each poll.
	Yield func() time.Duration
	// ReportLease receives the id of each lease before it is requested, and "" once it is released
	// or lost; it may be nil.
	ReportLease func(lease string)
	Metrics     *Metrics
}

// Work is what the leader does. It runs until it fails, until ctx ends (leadership is lost: stop at
// once; anything sent afterwards comes from a stale leader), or until term.Stopping() is closed
// (finish what is in progress, then return nil).
type Work func(ctx context.Context, term *Term) error

// Election takes part in the election of one stream's leader.
type Election struct {
	config  Config
	records Records
	leases  Leases
	log     *slog.Logger

	state  atomic.Pointer[State]
	ending atomic.Pointer[time.Time] // since when the work of a lost term has been ending; nil if none is
	seen   bool                      // a checkpoint has been read or created; only touched by Run
	epoch  int64                     // the highest epoch that was read or begun; only touched by Run
}

// SetCluster sets the identity of the source's cluster, empty if unknown, before the next
// [Election.Run].
func (e *Election) SetCluster(cluster string) { e.config.Fingerprint.Cluster = cluster }

// State is what is known about the leadership, for status pages.
type State struct {
	// Epoch and Leader are those of the record as last read.
	Epoch  int64
	Leader string
	// Position and WrittenAt are those of the record as last read or written; WrittenAt is a time
	// of this machine.
	Position  string
	WrittenAt time.Time
}

// New returns an election. It requests nothing before Run.
func New(config Config, records Records, leases Leases, log *slog.Logger) *Election {
	e := &Election{config: config, records: records, leases: leases, log: log}
	e.state.Store(&State{})
	return e
}

// State returns the current state. Safe for concurrent use.
func (e *Election) State() State { return *e.state.Load() }

// Run stands by, leads whenever it can, and stands by again when leadership is lost. When ctx ends
// it lets the work finish, writes the last checkpoint, releases the lease and returns nil. It
// returns an error if the work fails on its own (unless with [ErrStepDown]), and if the checkpoint
// cannot be used (checkpoint.ErrUnreadable, checkpoint.ErrGone, [ErrVanished], [ErrSessionKey],
// [ErrMapping]).
func (e *Election) Run(ctx context.Context, work Work) error {
	for {
		term, err := e.standBy(ctx)
		if err != nil || term == nil {
			return err
		}
		err = e.lead(ctx, term, work)
		e.reportLease("")
		e.config.Metrics.ended.WithLabelValues(reasonOf(err)).Inc()
		switch {
		case errors.Is(err, ErrLost), errors.Is(err, ErrFenced):
			e.log.Warn("leadership ended, standing by", telemetry.KeyEpoch, term.Epoch, telemetry.KeyError, err)
		case errors.Is(err, ErrStepDown):
			e.log.Warn("stepped down for another leader", telemetry.KeyEpoch, term.Epoch, telemetry.KeyError, err)
			// The other replicas poll: two poll intervals are enough for each of them.
			if retry.Sleep(ctx, 2*e.config.StandbyPoll) != nil {
				return nil
			}
		case err != nil || ctx.Err() != nil:
			return err
		}
	}
}

// Ending returns since when the work of a lost term has been ending, or zero. Safe for concurrent
// use.
func (e *Election) Ending() time.Time {
	if since := e.ending.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

func (e *Election) reportLease(lease string) {
	if e.config.ReportLease != nil {
		e.config.ReportLease(lease)
	}
}

func (e *Election) observe(s State) { e.state.Store(&s) }
