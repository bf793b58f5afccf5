package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/oplog"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Status is the state of a stream according to its checkpoint and MongoDB. A nil pointer means
// unknown, and the note beside it gives the reason.
type Status struct {
	Stream   string `json:"stream"`
	Leader   string `json:"leader"`
	Epoch    int64  `json:"epoch"`
	Lease    string `json:"lease"`
	Position string `json:"position"`
	// PositionTime is the cluster time in the position.
	PositionTime string `json:"position_time"`
	Published    int64  `json:"published"`
	SessionKey   string `json:"session_key"`
	// LagSeconds is the difference between the position and the deployment's current cluster time.
	// Both are from MongoDB's clock.
	LagSeconds *int64 `json:"lag_seconds"`
	LagNote    string `json:"lag_note,omitempty"`
	// HeartbeatAgeSeconds compares the leader's wall clock with this machine's, which nothing in
	// Sluice relies on.
	HeartbeatAgeSeconds float64 `json:"heartbeat_age_seconds"`
	// HeadroomSeconds is how far the oldest entry of the oplog is behind the position: at zero the
	// history is lost.
	HeadroomSeconds *int64 `json:"oplog_headroom_seconds"`
	HeadroomNote    string `json:"oplog_headroom_note,omitempty"`
	// Leads reports whether a replica holds the lease. Stopped reports whether the last failure is
	// unresolved: the stream has not passed it.
	Leads   bool `json:"leads"`
	Stopped bool `json:"stopped"`
	// Begins reports whether there is no position yet: a change made now may precede the beginning
	// of the stream.
	Begins bool `json:"begins"`
	// Snapshot is that which is being published; null without one.
	Snapshot *SnapshotStatus `json:"snapshot"`
	// Request is what an operator has requested of a snapshot and no leader has taken yet; null
	// without one.
	Request *checkpoint.Request `json:"request"`
	// LastFailure is the last failure of any replica; null if there was none.
	LastFailure *checkpoint.Failure `json:"last_failure"`
}

// Well reports whether the stream has begun, is led and makes progress.
func (st Status) Well() bool { return st.Leads && !st.Stopped && !st.Begins }

// Status reads the stream's state and changes nothing. If MongoDB is unreachable, it returns an
// error together with the state in the checkpoint; without a record there is no status.
func (s *Stream) Status(ctx context.Context) (Status, error) {
	snapshot, err := s.read(ctx)
	if err != nil {
		return Status{}, err
	}
	record := snapshot.Record
	at := timeOf(record.Progress)
	status := Status{
		Stream: s.Name, Leader: record.Leader, Epoch: record.Epoch, Lease: snapshot.LeaseState,
		Position: record.Progress.Position, PositionTime: formatTime(at), Published: record.Progress.Published,
		SessionKey:          record.SessionKey.String(),
		HeartbeatAgeSeconds: time.Since(record.HeartbeatAt).Round(time.Millisecond * 100).Seconds(),
	}
	status.Snapshot = SnapshotOf(record.Progress.Backfill, time.Now())
	if request, err := s.lastRequest(ctx); err == nil && request.Waiting() {
		status.Request = request
	}
	status.Leads, status.Begins = snapshot.Leased, record.Progress.Position == ""
	if status.LastFailure, err = s.lastFailure(ctx); err == nil && status.LastFailure != nil {
		status.Stopped = !status.LastFailure.Resolved(snapshot)
	}
	now, err := s.clusterTime(ctx)
	if err != nil {
		status.LagNote, status.HeadroomNote = "MongoDB does not answer", "MongoDB does not answer"
		return status, err
	}
	switch {
	case at.IsZero() && record.Progress.Position != "":
		status.LagNote, status.HeadroomNote = "the deployment reports no times of its changes", "the deployment reports no times of its changes"
		return status, nil
	case at.IsZero():
		status.LagNote, status.HeadroomNote = "there is no position yet", "there is no position yet"
		return status, nil
	case now.IsZero():
		status.LagNote = "the deployment reports no cluster time"
	default:
		status.LagSeconds = new(max(int64(now.T)-int64(at.T), 0))
	}
	oldest, note := s.oldest(ctx)
	if status.HeadroomNote = note; note == "" {
		status.HeadroomSeconds = new(int64(at.T) - int64(oldest.T))
	}
	return status, nil
}

// lastFailure returns why a replica last stopped publishing, or nil if none has or it cannot be
// read.
func (s *Stream) lastFailure(ctx context.Context) (*checkpoint.Failure, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	return s.checkpoint().LastFailure(ctx)
}

// timeOf returns the cluster time of a progress, or zero if it is unknown.
func timeOf(p checkpoint.Progress) bson.Timestamp {
	if at := envelope.TokenTime(p.Position); !at.IsZero() {
		return at
	}
	return p.ClusterTime
}

// oldest returns the time of the oldest entry of the oplog, or why it is unknown.
func (s *Stream) oldest(ctx context.Context) (t bson.Timestamp, note string) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	t, err := oplog.Oldest(ctx, s.Collection.Database().Client())
	switch {
	case errors.Is(err, oplog.ErrForbidden), errors.Is(err, oplog.ErrAbsent):
		return t, err.Error()
	case err != nil:
		return t, "local.oplog.rs cannot be read: " + err.Error()
	}
	return t, ""
}

// Print writes the status as text.
func (st Status) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, terminal.Printable(value)) }
	line("stream", st.Stream)
	switch {
	case st.Stopped:
		line("state", "STOPPED: nothing is published past its last failure, which is below")
	case !st.Leads:
		line("state", "NOT LED: no producer publishes; start one, or see its log")
	case st.Begins:
		line("state", "BEGINS: its leader has no position yet; wait with what must be published, or see its log")
	default:
		line("state", "published by its leader")
	}
	line("leader", leaderText(st.Leader, st.Lease))
	line("epoch", fmt.Sprint(st.Epoch))
	line("lease", st.Lease)
	line("heartbeat", fmt.Sprintf("%.1f s ago, by the wall clocks of two machines", st.HeartbeatAgeSeconds))
	if changes.Counted(st.Position) {
		line("position", st.Position+" (counted: the resume tokens cannot be sorted)")
	} else {
		line("position", cmp.Or(st.Position, "none yet"))
	}
	line("position time", st.PositionTime)
	line("published", fmt.Sprintf("%d events", st.Published))
	if b := st.Snapshot; b != nil {
		line("snapshot", b.text())
	}
	if st.Request != nil {
		line("request", requestText(*st.Request))
	}
	line("session key", st.SessionKey)
	line("lag", secondsText(st.LagSeconds, st.LagNote, "behind MongoDB's cluster time"))
	if n := st.HeadroomSeconds; n != nil && *n < 0 {
		line("oplog headroom", fmt.Sprintf("none: the oplog begins %d s after the position, and the changes between are lost", -*n))
	} else {
		line("oplog headroom", secondsText(st.HeadroomSeconds, st.HeadroomNote, "from the oldest entry of the oplog to the position"))
	}
	if f := st.LastFailure; f != nil {
		over := ""
		if !st.Stopped {
			over = " (over: " + since(st.Leads) + ")"
		}
		line("last failure", fmt.Sprintf("%s, of %s in epoch %d%s", f.At.Format(time.RFC3339), f.Instance, f.Epoch, over))
		line("", f.Error)
	}
	_ = w.Flush()
}

// since returns why a failure is resolved: its stream has continued, or an operator has moved or
// restored the checkpoint.
func since(leads bool) string {
	if leads {
		return "the stream has gone on since"
	}
	return "the checkpoint is past it now"
}

func leaderText(leader, lease string) string {
	switch {
	case leader == "":
		return "none yet"
	case lease == "leased":
		return leader
	}
	return "none (the last was " + leader + ")"
}

func secondsText(n *int64, note, meaning string) string {
	if n == nil {
		return "unknown: " + note
	}
	return fmt.Sprintf("%d s %s", *n, meaning)
}
