package console

import "time"

// View is the state of a pipeline at one moment. A nil pointer means unknown.
type View struct {
	At          time.Time    `json:"at"`
	Streams     []Stream     `json:"streams"`
	Queue       *Queue       `json:"queue"`
	Projections []Projection `json:"projections"`
	// Run is the run of the local stack; nil elsewhere.
	Run *Run `json:"run,omitempty"`
	// Problems are what could not be read, and why.
	Problems []string `json:"problems,omitempty"`
}

// Stream is one stream of the producer.
type Stream struct {
	Name string `json:"name"`
	// Leader is empty while no replica leads.
	Leader string `json:"leader"`
	Epoch  int64  `json:"epoch"`
	// State describes a stream that is not simply published by its leader; else it is empty.
	State string `json:"state,omitempty"`
	// Replicas are those that answer, if the home knows them.
	Replicas []Replica `json:"replicas,omitempty"`

	Published *int64 `json:"published"` // by all leaders, as far as the home knows
	InFlight  *int64 `json:"in_flight"`
	Lanes     *int64 `json:"lanes"`
	// FenceMarginMS is how long the leader may go on without another checkpoint, and FenceAfterMS
	// how long directly after one.
	FenceMarginMS *int64 `json:"fence_margin_ms"`
	FenceAfterMS  *int64 `json:"fence_after_ms"`
	// HeartbeatAgeMS is the age of the checkpoint by the wall clocks of two machines.
	HeartbeatAgeMS *int64 `json:"heartbeat_age_ms,omitempty"`
	Position       string `json:"position"`
	LagMS          *int64 `json:"lag_ms"`
	// HeadroomSeconds is how far the oplog reaches back behind the checkpoint; HeadroomNote is why
	// it is unknown.
	HeadroomSeconds *int64    `json:"oplog_headroom_seconds"`
	HeadroomNote    string    `json:"oplog_headroom_note,omitempty"`
	Snapshot        *Progress `json:"snapshot,omitempty"`
	Failure         string    `json:"failure,omitempty"`
}

// Replica is one process of the producer, for one stream.
type Replica struct {
	Name  string `json:"name"`
	Role  string `json:"role"` // leader, standby or failed
	Error string `json:"error,omitempty"`
}

// Progress is a build or a snapshot.
type Progress struct {
	State     string    `json:"state"`
	Done      int64     `json:"done"`
	Total     int64     `json:"total"` // 0: unknown
	Unit      string    `json:"unit"`
	Ranges    int64     `json:"ranges,omitempty"`
	Groups    int64     `json:"aggregates,omitempty"`
	BeganAt   time.Time `json:"began_at,omitzero"`
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// Queue is the subscription or queue between the services.
type Queue struct {
	Entity   string `json:"entity"`
	Active   *int64 `json:"active"`
	Sessions *int64 `json:"sessions"`
	// DeadLettered counts messages by reason; nil means unknown.
	DeadLettered map[string]int64 `json:"dead_lettered"`
	Note         string           `json:"note,omitempty"`
}

// Dead returns the number of dead letters; nil if it is unknown.
func (q *Queue) Dead() *int64 {
	if q == nil || q.DeadLettered == nil {
		return nil
	}
	var n int64
	for _, of := range q.DeadLettered {
		n += of
	}
	return &n
}

// Projection is one read model and its projectors.
type Projection struct {
	Name     string   `json:"name"`
	Database string   `json:"database,omitempty"`
	Replicas []string `json:"replicas,omitempty"`

	Applied      *int64 `json:"applied"`
	SessionsHeld *int64 `json:"sessions_held"`
	// Duplicates counts the events whose effect the guard refused because it had happened before.
	Duplicates  *int64 `json:"duplicates"`
	Redelivered *int64 `json:"redelivered"`
	Parked      *int64 `json:"parked"`
	// P50MS and P99MS are of the time from a change to its visible effect.
	P50MS           *float64 `json:"p50_ms"`
	P99MS           *float64 `json:"p99_ms"`
	LagMS           *int64   `json:"lag_ms"`
	NewestAggregate string   `json:"newest_aggregate,omitempty"`
	NewestPosition  string   `json:"newest_position,omitempty"`
	NewestTime      string   `json:"newest_time,omitempty"`
	// Build is the read model's build; nil if it has none.
	Build *Progress `json:"build,omitempty"`
	// Views are the collections that readers see, by view.
	Views map[string]string `json:"views,omitempty"`
}

// Run is a run of the local stack.
type Run struct {
	Elapsed  time.Duration `json:"elapsed_ns"`
	Followed bool          `json:"followed,omitempty"` // other programs insert: what the run has seen of it
	Inserted int64         `json:"inserted"`
	Total    int64         `json:"total"` // 0: it has no end
	Applied  int64         `json:"applied"`
	// Waiting is what the run waits for from the person who watches; usually empty.
	Waiting string `json:"waiting,omitempty"`
	// Failovers are the leaders that were taken away, oldest first.
	Failovers []Failover `json:"failovers,omitempty"`
	// Events are the newest lines of the run, newest first.
	Events []Event `json:"events,omitempty"`
	// Verdict is the first line of the result, and Summary all of it; empty until the end.
	Verdict string `json:"verdict,omitempty"`
	Summary string `json:"summary,omitempty"`
	Right   bool   `json:"right"`
}

// Failover is a leader that was taken away.
type Failover struct {
	Kind string `json:"kind"`
	// Epoch is that of the lost leader.
	Epoch int64 `json:"epoch"`
	// LeadsAfterMS and PublishAfterMS count from the loss to the next leader, and to the first
	// message that it published.
	LeadsAfterMS   int64 `json:"leads_after_ms"`
	PublishAfterMS int64 `json:"publish_after_ms"`
}

// Event is a line of a run.
type Event struct {
	At   time.Duration `json:"at_ns"` // below 0: before the run's clock began
	Text string        `json:"text"`
}

// Parked is a parked aggregate.
type Parked struct {
	Aggregate   string    `json:"aggregate"`
	Since       time.Time `json:"since"`
	Reason      string    `json:"reason"`
	Description string    `json:"description"`
	MessageID   string    `json:"message_id"`
	Position    string    `json:"position"`
	Applied     string    `json:"applied_position"`
	Session     string    `json:"session"`
	Waiting     []Letter  `json:"waiting,omitempty"`
	Overtaken   []Letter  `json:"overtaken,omitempty"`
}

// Letter is an event of a parked aggregate in the dead-letter queue.
type Letter struct {
	MessageID string `json:"message_id"`
	Position  string `json:"position"`
	Version   int64  `json:"version"` // 0: unknown
	Reason    string `json:"reason"`
}

// Trace is what is known of the newest events of one aggregate, newest first.
type Trace struct {
	Steps []Step `json:"steps"`
	// Guard describes what the read model has recorded of the aggregate; empty if it has nothing.
	Guard string `json:"guard"`
}

// Step is one event of an aggregate. A zero time means that it has not happened, or is not known.
type Step struct {
	Version   int64     `json:"version"`
	Position  string    `json:"position"`
	Epoch     int64     `json:"epoch"`
	Inserted  time.Time `json:"inserted,omitzero"`
	Published time.Time `json:"published,omitzero"`
	Applied   time.Time `json:"applied,omitzero"`
	// Repeats is how many more times the broker was given the event.
	Repeats int64 `json:"repeats"`
	// State is where the event is: applied, waiting, parked and so on.
	State string `json:"state"`
}
