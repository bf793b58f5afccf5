package pipeline

import (
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// round is the attempts to decide a batch between two receives.
type round struct {
	began        time.Time
	skip         map[string]bool // aggregates that are not tried in this round
	gaps         int             // changes that miss a version since before the last attempt
	limit        int             // changes that are tried at once, after attempts with more timed out; 0: all
	timeouts     int             // attempts in a row that timed out with nothing decided
	perAggregate bool            // after an attempt that failed, each aggregate is written in a transaction of its own
}

// attempt is one attempt to write a batch, or to fetch the body of a change before that. The zero
// value stands for no attempt yet.
type attempt struct {
	fetched bool // it fetched the body of change; err is why it could not
	change  int

	made     bool            // it was to write the batch
	limit    int             // changes that were tried at once; 0: all
	tried    bool            // at least one change could be tried
	timedOut bool            // its time ran out
	failures []apply.Failure // changes that failed for reasons of their own
	err      error           // why nothing more could be done; nil: everything was tried
	away     error           // why the projection's program could not be asked: nothing was tried
}

// action is what to do with a batch.
type action uint8

const (
	// finish: everything is decided.
	finish action = iota
	// write tries what can be written now.
	write
	// writeLater does that after a pause, in which the session is kept: nothing can be written at
	// all.
	writeLater
	// fetch fetches the body of a change.
	fetch
	// deferRest keeps what is undecided in hand, and continues with the messages behind it.
	deferRest
	// release has the messages delivered again.
	release
	// fail reports that nothing was decided although nothing waits.
	fail
)

// step is what to do with a batch, and what is to be reported.
type step struct {
	action action
	change int       // fetch: whose body
	until  time.Time // deferRest: when a change is to be tried again

	available   bool  // the attempt has shown that the database is available
	unavailable error // it has shown that the database is not
	away        error // the projection's program cannot be asked
	versionGap  bool  // an event waits for a version
	failing     []failing
}

// failing is an event that cannot be applied, and that was not logged for some time.
type failing struct {
	change envelope.Change
	err    error
	since  time.Duration
}
