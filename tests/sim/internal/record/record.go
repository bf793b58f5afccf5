// Package record keeps what is recorded of a simulated run, while it runs.
//
// Guaranteed: observers, services and the run itself may use a [Record] at the same time, from any
// goroutine. It returns copies; what it keeps can be reached in no other way.
package record

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
)

// Record is everything recorded of one run.
type Record struct {
	mu sync.Mutex // guards everything below

	run       checker.Run
	events    map[string]string          // by message id, the id of the event, if a message of a rewound stream has another one
	kinds     []string                   // of the committed events
	versions  map[version]accepted       // what was accepted of it first
	garbage   map[string]checker.Garbage // by message id: what strangers send
	rows      int                        // of snapshots
	repeats   int                        // rows of events that had been accepted
	published map[string]bool            // ids of the messages that the broker has accepted
	visible   map[string]int64           // events in the read model, by aggregate
}

// New returns an empty record of a run of which the given parts are known.
func New(run checker.Run) *Record {
	return &Record{run: run, events: map[string]string{}, versions: map[version]accepted{}, garbage: map[string]checker.Garbage{}, published: map[string]bool{}, visible: map[string]int64{}}
}

// Run returns a copy of what is recorded so far.
func (r *Record) Run() checker.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return clone(r.run)
}

func clone(run checker.Run) checker.Run {
	run.Committed, run.Accepted, run.Observed = slices.Clone(run.Committed), slices.Clone(run.Accepted), slices.Clone(run.Observed)
	run.Writes, run.Sick, run.Garbage = slices.Clone(run.Writes), slices.Clone(run.Sick), slices.Clone(run.Garbage)
	run.Aside, run.Left, run.Ended = slices.Clone(run.Aside), slices.Clone(run.Left), slices.Clone(run.Ended)
	run.Parked, run.Losses = slices.Clone(run.Parked), slices.Clone(run.Losses)
	run.Given = slices.Clone(run.Given)
	return run
}

// Note changes the record; note must not keep anything of it.
func (r *Record) Note(note func(run *checker.Run)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	note(&r.run)
}

// Commit records an event of this kind that is being committed.
func (r *Record) Commit(c history.Commit, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.At = time.Now()
	r.run.Committed = append(r.run.Committed, c)
	r.kinds = append(r.kinds, kind)
}

// Send announces garbage, which the broker will report when it accepts it.
func (r *Record) Send(g checker.Garbage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.garbage[g.MessageID] = g
}

// Accept records what the broker accepts.
func (r *Record) Accept(a servicebus.Accepted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.garbage[a.MessageID]; ok {
		if g.After = len(r.run.Accepted); !a.Duplicate && !slices.ContainsFunc(r.run.Garbage, g.Is) {
			r.run.Garbage = append(r.run.Garbage, g)
		}
		return
	}
	taken := witness.Accepted(a)
	if id, _ := a.Properties["cloudEvents_id"].(string); id != "" && id != a.MessageID && republished(a.MessageID, id) {
		r.events[a.MessageID], taken.MessageID = id, id
	}
	if taken.Row && !a.Duplicate {
		r.rows++
	}
	if id := r.same(taken); id != taken.MessageID {
		r.events[a.MessageID], taken.MessageID = id, id
		if taken.Row && !a.Duplicate {
			r.repeats++
		}
	}
	r.run.Accepted = append(r.run.Accepted, taken)
	r.published[taken.MessageID] = true
}

// republished reports whether a message carries an event with the id that it has in a later
// generation. Any other id would be a new message to the broker, and is left for the judge.
func republished(message, event string) bool {
	for rewinds := range int64(16) { // more than any run has
		if envelope.InGeneration(event, rewinds+1) == message {
			return true
		}
	}
	return false
}

// version is an event of an aggregate by its number; accepted is the first message of it.
type (
	version struct {
		stream, aggregate string
		number            int64
	}
	accepted struct {
		messageID string
		row       bool
	}
)

// same returns the id of the first message of an event, if this one or the first is a row of a
// snapshot: both carry the same, under other ids.
func (r *Record) same(a history.Acceptance) string {
	of := version{a.Stream, a.Aggregate, a.Version}
	first, known := r.versions[of]
	switch {
	case !known && a.Version > 0:
		r.versions[of] = accepted{a.MessageID, a.Row}
	case known && (a.Row || first.row):
		return first.messageID
	}
	return a.MessageID
}

// Rows returns how many rows of snapshots were accepted, and how many of these repeat an event.
func (r *Record) Rows() (rows, repeats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows, r.repeats
}

// Event returns the id of the event of a message: that of its first message, even after its stream
// was rewound.
func (r *Record) Event(messageID string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.events[messageID], messageID)
}

// Park records a message that is parked. One that the broker has not accepted counts as abandoned.
func (r *Record) Park(p checker.Parked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Parked = append(r.run.Parked, p)
	given := checker.Given{Aggregate: p.Aggregate, Version: p.Version, Why: "parked"}
	if !r.published[p.MessageID] && !slices.Contains(r.run.Given, given) { // parked again by the next leader
		r.run.Given = append(r.run.Given, given)
	}
}

// Parked returns how many messages were parked, each as many times as it was.
func (r *Record) Parked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.run.Parked)
}

// Write records a write of a checkpoint that the storage accepted, and numbers it.
func (r *Record) Write(w checker.Write) (number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Writes = append(r.run.Writes, w)
	return len(r.run.Writes) - 1
}

// Answered records that the writer of a checkpoint received the answer.
func (r *Record) Answered(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Writes[number].Answered = true
}

// Observe records one change of a document of the read model.
func (r *Record) Observe(o history.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Observed = append(r.run.Observed, o)
	if o.Events >= 0 {
		r.visible[o.Aggregate] = o.Events
	}
}

// End records a service or a command that ended as it should not.
func (r *Record) End(instance string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Ended = append(r.run.Ended, checker.Ended{Instance: instance, Err: err})
}

// Accepted returns how many messages of the streams the broker has accepted, including repeats.
func (r *Record) Accepted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.run.Accepted)
}

// Published returns how many different messages of the streams the broker has accepted.
func (r *Record) Published() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.published))
}

// NotAgain returns how many messages must be published again, since their checkpoint was rewound,
// and have not been so far.
func (r *Record) NotAgain() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.run.NotAgain())
}

// Took reports whether the broker has accepted the change of a stream at a position.
func (r *Record) Took(stream, position string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.run.Accepted, func(a history.Acceptance) bool { return a.Stream == stream && a.Position == position })
}

// Next returns the first version of an aggregate that the broker has not accepted from a stream and
// that is not abandoned.
func (r *Record) Next(stream, aggregate string) (next history.Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := map[string]bool{}
	for _, a := range r.run.Accepted {
		if a.Stream == stream && a.Aggregate == aggregate {
			taken[a.MessageID] = true
		}
	}
	left := len(taken)
	for _, c := range r.run.Kept() {
		if c.Aggregate == aggregate && (c.Stream == stream || c.Stream == "") {
			if left--; left < 0 {
				return c
			}
		}
	}
	return history.Commit{}
}

// Seen returns how many events were committed and not abandoned since, and how many are visible in
// the read model.
func (r *Record) Seen() (committed, visible int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.visible {
		visible += n
	}
	return int64(len(r.run.Committed) - len(r.run.Given)), visible
}

// Hidden returns how many committed events cannot be visible while poison and garbage are there.
func (r *Record) Hidden() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.run.Patients() {
		n += s.Total - s.Before
	}
	return n
}

// Type returns the type of a committed event; empty without one.
func (r *Record) Type(aggregate string, version int64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, c := range r.run.Committed {
		if c.Aggregate == aggregate && c.Version == version {
			return r.kinds[n]
		}
	}
	return ""
}

// Missing returns how many committed events of some aggregates have not become visible.
func (r *Record) Missing(aggregates ...string) (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.run.Committed {
		if slices.Contains(aggregates, c.Aggregate) {
			n++
		}
	}
	for _, aggregate := range aggregates {
		n -= r.visible[aggregate]
	}
	return n
}

// Dropped returns how many events the operator has dropped.
func (r *Record) Dropped() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.run.Sick {
		if s.Dropped {
			n++
		}
	}
	return n
}

// Fold returns the read model of the committed events that must be visible, and how many there are
// of each type. occurred returns the time in an event.
func (r *Record) Fold(occurred func(c history.Commit, kind string) string) (timelines, totals *history.Model) {
	return r.fold(occurred, nil)
}

// fold folds the events that must be visible, or those that visible reports to be.
func (r *Record) fold(
	occurred func(c history.Commit, kind string) string, visible func(history.Commit) bool,
) (timelines, totals *history.Model) {
	timelines, totals = &history.Model{}, &history.Model{}
	r.mu.Lock()
	defer r.mu.Unlock()
	if visible == nil {
		visible = r.run.Visible()
	}
	rank, counts := r.run.Ranks(), map[string]int64{}
	for n, c := range r.run.Committed {
		if visible(c) {
			timelines.Fold(c.Aggregate, rank(c), r.kinds[n], occurred(c, r.kinds[n]))
			counts[r.kinds[n]]++
		}
	}
	for kind, n := range counts {
		totals.Put(kind, history.Summary{Events: n})
	}
	return timelines, totals
}

// FoldAll is like [Record.Fold] of every committed event.
func (r *Record) FoldAll(occurred func(c history.Commit, kind string) string) (timelines, totals *history.Model) {
	return r.fold(occurred, func(history.Commit) bool { return true })
}

// Leader returns the instance that wrote a checkpoint last; empty before the first write.
func (r *Record) Leader() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.run.Writes); n > 0 {
		return r.run.Writes[n-1].Leader
	}
	return ""
}

// Begun reports whether the checkpoint of each of these streams has a position.
func (r *Record) Begun(streams []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := map[string]bool{}
	for _, write := range r.run.Writes {
		begun[write.Stream] = write.Position != ""
	}
	return !slices.ContainsFunc(streams, func(stream string) bool { return !begun[stream] })
}

// Sound reports whether an aggregate has events and neither has nor will get a fault.
func (r *Record) Sound(aggregate string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.garbage {
		if g.Aggregate == aggregate {
			return false
		}
	}
	return slices.ContainsFunc(r.run.Committed, func(c history.Commit) bool { return c.Aggregate == aggregate }) &&
		!slices.ContainsFunc(r.run.Sick, func(s checker.Sick) bool { return s.Aggregate == aggregate })
}

// Last returns the position of the last message of a stream that the broker has accepted for an
// aggregate; empty without one.
func (r *Record) Last(stream, aggregate string) (position string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.run.Accepted {
		if a.Stream == stream && a.Aggregate == aggregate {
			position = max(position, a.Position)
		}
	}
	return position
}
