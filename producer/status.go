package producer

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Status is what /status shows.
type Status struct {
	Instance string `json:"instance"`
	Stream   string `json:"stream"`
	// Role is leader or standby.
	Role string `json:"role"`
	// Epoch and Leader are those of the checkpoint as this replica last saw it.
	Epoch  int64  `json:"epoch"`
	Leader string `json:"leader"`
	// Published counts the events acknowledged to this process; InFlight those read and not yet acknowledged.
	Published int64 `json:"published"`
	InFlight  int64 `json:"in_flight"`
	// Position is how far everything has been acknowledged: a leader's own, else the checkpoint's.
	Position string `json:"position"`
	// CheckpointAgeMS is the time since the checkpoint was last written (a standby: since it saw it change); -1 when it
	// has seen none.
	CheckpointAgeMS int64 `json:"checkpoint_age_ms"`
	// BehindMS is how long before now, by this machine's clock, Position was made in the source: what the oplog must reach
	// back to. -1 when there is no position yet.
	BehindMS int64 `json:"behind_ms"`
	// ReadyToRead: this replica leads, its change stream is open, and the stream's beginning is in the checkpoint.
	ReadyToRead bool `json:"ready_to_read"`
}

func (p *producer) status() any {
	state := p.election.State()
	s := Status{
		Instance: p.instance, Stream: p.config.Stream, Role: "standby",
		Epoch: state.Epoch, Leader: state.Leader, Published: p.metrics.Published(), Position: state.Position,
		CheckpointAgeMS: -1,
	}
	if !state.WrittenAt.IsZero() {
		s.CheckpointAgeMS = time.Since(state.WrittenAt).Milliseconds()
	}
	if a := p.current.Load(); a != nil {
		s.Role = "leader"
		s.InFlight = a.publisher.InFlight()
		s.Position = a.publisher.Progress().Position
		s.ReadyToRead = a.reader.Reading() && a.sink.begun.Load()
	}
	s.BehindMS = behind(s.Position, time.Now())
	return s
}

// behind is the age of a position in milliseconds, at least 0; -1 of one that tells no time. A sortable position begins
// with its cluster time: the byte 82 and the seconds, in hex [envelope.Sortable].
func behind(position string, now time.Time) int64 {
	if !envelope.Sortable(position) || len(position) < 10 {
		return -1
	}
	seconds, err := strconv.ParseUint(position[2:10], 16, 32)
	if err != nil {
		return -1
	}
	return max(now.Sub(time.Unix(int64(seconds), 0)).Milliseconds(), 0)
}

// live has nothing to say against a process that can answer: a replica that cannot reach its services waits for them,
// and a restart would not bring them back.
func (p *producer) live() error { return nil }

// ready is a standby's answer, too: a rollout waits for it before it stops the old leader.
func (p *producer) ready() error { return nil }

func (p *producer) observe(r prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("sluice_producer_leading", "1 while this replica leads the stream, else 0.", func() float64 {
		if p.current.Load() != nil {
			return 1
		}
		return 0
	})
	gauge("sluice_producer_epoch", "The epoch of the leadership, as this replica last saw it.", func() float64 {
		return float64(p.election.State().Epoch)
	})
	gauge("sluice_producer_in_flight", "Events read and not yet acknowledged.", func() float64 {
		if a := p.current.Load(); a != nil {
			return float64(a.publisher.InFlight())
		}
		return 0
	})
	gauge("sluice_producer_checkpoint_age_seconds", "Time since the checkpoint was last written, or seen to change.", func() float64 {
		written := p.election.State().WrittenAt
		if written.IsZero() {
			return -1
		}
		return time.Since(written).Seconds()
	})
}
