package producer

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/operator"
	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Status is what /status returns.
type Status struct {
	Instance string `json:"instance"`
	Stream   string `json:"stream"`
	// Role is leader, standby, or failed: Error has stopped the stream, which will be restarted.
	Role  string `json:"role"`
	Error string `json:"error,omitempty"`
	// Epoch and Leader are those of the checkpoint as this replica last read it.
	Epoch  int64  `json:"epoch"`
	Leader string `json:"leader"`
	// Published counts the events acknowledged to this process; InFlight those read and not yet
	// acknowledged.
	Published int64 `json:"published"`
	InFlight  int64 `json:"in_flight"`
	// Lanes is how many batches may be outstanding at the moment; 0 on a standby.
	Lanes int64 `json:"lanes"`
	// FenceMarginMS is how long the leader may continue without another checkpoint, of FenceAfterMS
	// directly after one; 0 on a standby.
	FenceMarginMS int64 `json:"fence_margin_ms"`
	FenceAfterMS  int64 `json:"fence_after_ms"`
	// Parked counts the events that Service Bus permanently refused and this process stored in Blob
	// storage (ON_REFUSED=park).
	Parked int64 `json:"parked"`
	// Position is how far everything has been acknowledged: on a leader its own, otherwise the
	// checkpoint's.
	Position string `json:"position"`
	// CheckpointAgeMS is the time since the checkpoint was last written (on a standby: since it
	// last changed); -1 if this replica has read none.
	CheckpointAgeMS int64 `json:"checkpoint_age_ms"`
	// BehindMS is the age of Position in the source, by this machine's clock: how far the oplog
	// must reach back. -1 if there is no position yet.
	BehindMS int64 `json:"behind_ms"`
	// LagMS is the time since everything in the source was known to be acknowledged, by this
	// machine's clock: about 0 on an idle stream. While that is unknown, and on a standby, it is
	// BehindMS.
	LagMS int64 `json:"lag_ms"`
	// OplogHeadroomSeconds is how far the oldest entry of the source's oplog is behind the
	// checkpoint: at 0 its history is lost. Null while unknown, with the reason beside it; a
	// standby does not measure it.
	OplogHeadroomSeconds *int64 `json:"oplog_headroom_seconds"`
	OplogHeadroomNote    string `json:"oplog_headroom_note,omitempty"`
	// FirstAnswerSeconds is how long MongoDB took from opening the change stream after the
	// checkpoint to its first response, the last time in this term: long in a database with many
	// writes since. Null if it was not opened that way.
	FirstAnswerSeconds *float64 `json:"first_answer_seconds"`
	// ReadyToRead reports whether this replica leads, its change stream is open, and the stream's
	// beginning is in the checkpoint, or cannot be before the first change.
	ReadyToRead bool `json:"ready_to_read"`
	// Snapshot is that which this leader publishes; null without one.
	Snapshot *operator.SnapshotStatus `json:"snapshot"`
}

func (p *replica) status() Status {
	state := p.election.State()
	s := Status{
		Instance: p.instance, Stream: p.cfg.Stream, Role: "standby",
		Epoch: state.Epoch, Leader: state.Leader, Published: p.publishMetrics.Published(), Parked: p.publishMetrics.Parked(), Position: state.Position,
		FenceAfterMS: p.cfg.FenceAfter.Milliseconds(), CheckpointAgeMS: -1,
	}
	if !state.WrittenAt.IsZero() {
		s.CheckpointAgeMS = time.Since(state.WrittenAt).Milliseconds()
	}
	if a := p.active.Load(); a != nil {
		s.Role = "leader"
		s.InFlight, s.Lanes = a.publisher.InFlight(), int64(a.publisher.Lanes())
		s.FenceMarginMS = max((p.cfg.FenceAfter - time.Since(state.WrittenAt)).Milliseconds(), 0)
		s.Position = a.publisher.Progress().Position
		if first := a.reader.FirstAnswer(); first > 0 {
			s.FirstAnswerSeconds = new(first.Seconds())
		}
		s.Snapshot = p.snapshot()
		s.ReadyToRead = a.reader.Reading() && (a.sink.started.Load() || a.reader.Tokenless())
	}
	if failure := p.failure.Load(); failure != nil {
		s.Role, s.Error = "failed", (*failure).Error()
	}
	if seconds, note := p.headroom(); note == "" {
		s.OplogHeadroomSeconds = &seconds
	} else {
		s.OplogHeadroomNote = note
	}
	now := time.Now()
	s.BehindMS = ageMS(s.Position, now)
	s.LagMS = s.BehindMS
	if current := p.upToDateAt(); !current.IsZero() && (s.BehindMS < 0 || now.Sub(current).Milliseconds() < s.BehindMS) {
		s.LagMS = max(now.Sub(current).Milliseconds(), 0)
	}
	return s
}

// upToDateAt returns when everything in the source was last known to be acknowledged, or zero while
// something is in flight.
func (p *replica) upToDateAt() time.Time {
	a := p.active.Load()
	if a == nil {
		return time.Time{}
	}
	at := a.reader.Current() // read before what is in flight: a change read meanwhile counts
	if a.publisher.InFlight() > 0 {
		return time.Time{}
	}
	return at
}

// headroom returns the oplog's headroom for the position from which a next leader would continue:
// the checkpoint's.
func (p *replica) headroom() (seconds int64, note string) {
	a := p.active.Load()
	if a == nil {
		return 0, "standing by"
	}
	return a.oplog.Headroom(envelope.TokenTime(p.election.State().Position))
}

// snapshot returns the snapshot that this leader publishes; nil without one.
func (p *replica) snapshot() *operator.SnapshotStatus {
	if a := p.active.Load(); a != nil {
		return operator.SnapshotOf(a.publisher.Progress().Backfill, time.Now())
	}
	return nil
}

// ageMS returns the age of a position in milliseconds, at least 0, or -1 if it contains no time.
func ageMS(position string, now time.Time) int64 {
	at := envelope.TokenTime(position)
	if at.IsZero() {
		return -1
	}
	return max(now.Sub(time.Unix(int64(at.T), 0)).Milliseconds(), 0)
}

func (p *replica) registerMetrics(r prometheus.Registerer) {
	registered := promauto.With(r)
	gauge := func(name, help string, value func() float64) {
		registered.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("sluice_producer_leading", "1 while this replica leads the stream, else 0.", func() float64 { return oneIf(p.active.Load() != nil) })
	gauge("sluice_producer_failed", "1 while the stream is stopped by an error and waits to be retried, else 0.", func() float64 {
		return oneIf(p.failure.Load() != nil)
	})
	gauge("sluice_producer_epoch", "The epoch of the leadership, as this replica last saw it.", func() float64 {
		return float64(p.election.State().Epoch)
	})
	gauge("sluice_producer_lag_seconds", "Time since everything in the source was known to be acknowledged, about 0 while nothing comes; else "+
		"the age of the change up to which everything is acknowledged, by the two machines' clocks. NaN while unknown.", func() float64 {
		ms := p.status().LagMS
		if ms < 0 {
			return math.NaN()
		}
		return (time.Duration(ms) * time.Millisecond).Seconds()
	})
	registered.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_producer_links_replaced_total",
		Help: "Connections to Service Bus that were abandoned because a send on them failed.",
	}, func() float64 { return float64(p.clients.broker.Replaced()) })
	gauge("sluice_producer_in_flight", "Events read and not yet acknowledged: the part of the lag that can be counted.", func() float64 {
		return float64(p.status().InFlight)
	})
	gauge("sluice_producer_lanes", "Batches that may be outstanding at the moment; 0 on a standby.", func() float64 {
		return float64(p.status().Lanes)
	})
	gauge("sluice_producer_oplog_headroom_seconds", "How far the oldest entry of the source's oplog lies behind the checkpoint: at 0 "+
		"changes are lost. NaN while unknown, and on a standby.", func() float64 {
		return orElse(math.NaN(), p.status().OplogHeadroomSeconds)
	})
	registerSnapshotMetrics(gauge, p.snapshot)
	gauge("sluice_producer_checkpoint_age_seconds", "Time since the checkpoint was last written, or seen to change. NaN before that.", func() float64 {
		written := p.election.State().WrittenAt
		if written.IsZero() {
			return math.NaN()
		}
		return time.Since(written).Seconds()
	})
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// orElse returns a number of seconds, or unknown for nil.
func orElse(unknown float64, seconds *int64) float64 {
	if seconds == nil {
		return unknown
	}
	return float64(*seconds)
}

// registerSnapshotMetrics registers what is computed from the snapshot's progress; snapshot returns
// nil without one.
func registerSnapshotMetrics(gauge func(name, help string, value func() float64), snapshot func() *operator.SnapshotStatus) {
	of := func(without float64, value func(*operator.SnapshotStatus) float64) func() float64 {
		return func() float64 {
			if s := snapshot(); s != nil {
				return value(s)
			}
			return without
		}
	}
	gauge("sluice_producer_snapshot_paused", "1 while a snapshot is paused, else 0.",
		of(0, func(s *operator.SnapshotStatus) float64 { return oneIf(s.Paused) }))
	gauge("sluice_producer_snapshot_documents_per_second", "Documents of a snapshot published per second since it began or was last resumed; 0 without one.",
		of(0, func(s *operator.SnapshotStatus) float64 { return s.PerSecond }))
	gauge("sluice_producer_snapshot_remaining_seconds", "Time that the rest of a snapshot takes at this rate. NaN while unknown, and without one.",
		of(math.NaN(), func(s *operator.SnapshotStatus) float64 { return orElse(math.NaN(), s.SecondsToGo) }))
	gauge("sluice_producer_snapshot_suppression_seconds", "For how long changes of documents that a snapshot has not reached have been left out; 0 if none are.",
		of(0, func(s *operator.SnapshotStatus) float64 { return orElse(0, s.SuppressionSeconds) }))
}

// recordTimeout bounds the write of a failure: the process may be about to end because storage is
// unreachable.
const recordTimeout = 2 * time.Second

// recordFailure stores beside the checkpoint why this replica stopped publishing the stream, so
// that `producer status` and the doctor can show it wherever the log went. Nothing else depends on
// it: if it cannot be written, nothing else happens.
func (p *replica) recordFailure(ctx context.Context, why error, stepDown bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	state := p.election.State()
	err := p.checkpoint.WriteFailure(ctx, checkpoint.Failure{
		Stream: p.cfg.Stream, Instance: p.instance, Led: state.Leader == p.instance, Epoch: state.Epoch, StepDown: stepDown,
		Position: state.Position, Error: why.Error(), At: time.Now().UTC(),
	})
	if err != nil {
		p.log.Debug("the failure could not be stored beside the checkpoint", telemetry.KeyError, err)
	}
}

// home returns what the console of this replica shows: the same as /status.
func (p *process) home() console.Home {
	return console.Home{
		Title: "producer " + p.instance, Base: "/ui", Public: true,
		View: func(context.Context) (v console.View) {
			for _, s := range p.streams {
				v.Streams = append(v.Streams, viewOf(s.status()))
			}
			return v
		},
	}
}

// viewOf returns the status of one stream as the console shows it.
func viewOf(s Status) console.Stream {
	v := console.Stream{
		Name: s.Stream, Leader: s.Leader, Epoch: s.Epoch, Published: &s.Published, Position: s.Position,
		HeadroomSeconds: s.OplogHeadroomSeconds, HeadroomNote: s.OplogHeadroomNote, Failure: s.Error,
		Replicas: []console.Replica{{Name: s.Instance, Role: s.Role, Error: s.Error}},
	}
	if s.LagMS >= 0 {
		v.LagMS = &s.LagMS
	}
	if s.CheckpointAgeMS >= 0 {
		v.HeartbeatAgeMS = &s.CheckpointAgeMS
	}
	if b := s.Snapshot; b != nil {
		v.Snapshot = b.Progress()
	}
	if s.Role == "leader" {
		v.InFlight, v.Lanes, v.FenceMarginMS, v.FenceAfterMS = &s.InFlight, &s.Lanes, &s.FenceMarginMS, &s.FenceAfterMS
	}
	return v
}
