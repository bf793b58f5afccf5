package plan

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// The ways in which a stream has a snapshot.
const (
	// SnapshotStart begins each stream with the documents that its collection holds.
	SnapshotStart = "start"
	// SnapshotHeal replaces history that is lost: ON_HISTORY_LOST=snapshot.
	SnapshotHeal = "heal"
	// SnapshotRequest is a snapshot of all documents that the operator starts.
	SnapshotRequest = "request"
	// SnapshotAggregates is one of single aggregates that the operator starts.
	SnapshotAggregates = "aggregates"
)

var snapshotForms = []string{SnapshotStart, SnapshotHeal, SnapshotRequest, SnapshotAggregates}

const (
	// LoseHistory is history that MongoDB has lost when the producers read on.
	LoseHistory Kind = "lose-history"
	// CommandSnapshot is a command of the operator for the snapshot of a stream: [StartSnapshot],
	// pause or resume.
	CommandSnapshot Kind = "command-snapshot"
)

// StartSnapshot is the command that starts a snapshot.
const StartSnapshot = "start"

// snapshots draws a snapshot in a part of the runs whose events are inserted: documents that are
// there before the streams begin, history that is lost once or twice, or a snapshot that the
// operator starts. The operator pauses and resumes each up to twice. It leaves out what takes
// documents away, what publishes events again or leaves them out, and, where rows repeat events,
// what parks aggregates. Runs with repairs, which are refused meanwhile, have none.
func (d *drawing) snapshots(r *rand.Rand) {
	s := &d.plan.Settings
	form, chunk, rate := snapshotForms[r.IntN(len(snapshotForms))], 1+r.IntN(30), []int{0, 0, 3, 20}[r.IntN(4)]
	wanted, replaces := r.IntN(3) > 0, r.IntN(3) == 0 // of the runs that could have one, and of those with a replaced collection
	// From a source of its own, so that it changes nothing else that is drawn.
	mutable := rand.New(rand.NewPCG(d.plan.Seed, 0x33))
	compound := mutable.IntN(4) == 0
	if compound {
		form = SnapshotStart
	}
	before, losses := 20+r.IntN(120), moments(r, 1+r.IntN(2), d.length)
	requested := form == SnapshotRequest || form == SnapshotAggregates
	var events []Event
	for range before {
		e := Event{Aggregate: fmt.Sprintf("hot-%d", r.IntN(d.hot)), Kind: fmt.Sprintf("Kind%d", r.IntN(3))}
		if n := r.IntN(2 * d.cold); r.IntN(2) == 0 {
			e.Aggregate = fmt.Sprintf("cold-%d", n) // half of them have no other events
		}
		if requested { // a later event that came first would be the aggregate's beginning in the read model
			e.Aggregate = "old-" + e.Aggregate
		}
		if collection := Collections[r.IntN(s.Streams)]; s.Shared {
			e.Collection = collection
		}
		events = append(events, e)
	}
	var steps []Step
	if form == SnapshotHeal {
		for _, at := range losses {
			steps = append(steps, Step{At: at, Kind: LoseHistory, Silent: r.IntN(2) == 0, For: between(r, time.Second, 10*time.Second)})
		}
	}
	for _, stream := range s.StreamNames() {
		if requested {
			steps = append(steps, Step{At: between(r, 0, d.length), Kind: CommandSnapshot, Stream: stream, Command: StartSnapshot})
		}
		for range r.IntN(3) {
			at := between(r, 0, d.length)
			steps = append(steps, Step{At: at, Kind: CommandSnapshot, Stream: stream, Command: "pause"},
				Step{At: sum(at, between(r, time.Second, 10*time.Second).Duration), Kind: CommandSnapshot, Stream: stream, Command: "resume"})
		}
	}
	wanted = wanted || d.feature == WithSnapshot
	replaces = replaces || d.feature == WithSnapshot
	older := s.MongoVersion == "4.4"
	if d.plan.Has(Repair) || s.Documents != "" || s.Deliveries > 0 || s.OnReplaced != "" && !replaces || s.OnReplaced == "" && !older && !wanted {
		return
	}
	if s.OnReplaced = ""; older {
		s.MongoVersion = "5.0"
	}
	s.Snapshot, s.SnapshotChunk, s.SnapshotRate = form, chunk, rate
	s.GapWait = seconds(30) // without judged versions no projection distinguishes repeated rows from its events
	s.OnRefused = ""        // a version that is left out would be a gap
	left := []Kind{Rewind, RefuseMessage, ReplaceCollection}
	if form != SnapshotHeal {
		d.plan.Before = events
	}
	if form != SnapshotStart {
		d.plan.Garbage = nil
		left = append(left, Poison, RefuseDocument)
	}
	d.add(steps...)
	if compound {
		d.compound(mutable)
		left = append(left, Poison, RefuseDocument, HangProjection)
	}
	d.leaveOut(left...)
}

// compound turns the events of a stream that begins with a snapshot into changes of documents whose
// keys are {aggregate, version}. Rows of documents that change have no version, by which what is
// set aside is judged: nothing is poison in these runs.
func (d *drawing) compound(r *rand.Rand) {
	s := &d.plan.Settings
	s.Documents, s.GapWait, s.VersionFirst, s.BodyKiB, s.BodiesInHand = Compound, Duration{}, 0, 0, 0
	if s.MongoVersion == "5.0" {
		s.MongoVersion = "6.0" // the first one with images
	}
	d.plan.Garbage = nil
	changes(r, d.plan.Bursts)
	for n := range d.plan.Before { // a delete would be no event of the stream
		d.plan.Before[n].Operation = []envelope.Operation{envelope.Update, envelope.Replace}[r.IntN(2)]
	}
}
