package pipeline

import "time"

// maxStuck is how long a session is kept while its batch cannot be finished. The service detaches a link that is idle for ten
// minutes; the locks of its messages then expire, which raises their delivery counts. A session that is released before raises none;
// the replica that accepts it next retries.
const maxStuck = 5 * time.Minute

// outcome is what an attempt to write a batch led to.
type outcome struct {
	undecided int           // changes
	waiting   bool          // at least one of them waits for a retry, a body or a version
	away      bool          // nothing more could be done, and no single aggregate is to blame
	blamed    bool          // changes failed for reasons of their own
	progress  bool          // changes were decided
	expired   bool          // a version that is missing was waited for long enough
	body      bool          // a body can be fetched
	stuck     time.Duration // since the first attempt
}

// step is what to do with a batch after an attempt to write it.
type step uint8

const (
	// finished is a batch of which everything is decided.
	finished step = iota
	// again writes what can be written now.
	again
	// later does that after a pause, in which the session is kept: nothing can be written at all.
	later
	// fetch gets a body, then writes again.
	fetch
	// wait keeps what is undecided in hand, and goes on with what the session holds behind it.
	wait
	// release has the messages delivered again.
	release
	// stuck is a batch in which nothing was decided though nothing of it waits.
	stuck
)

// next decides what to do with a batch after an attempt. It is pure.
func next(o outcome) step {
	switch {
	case o.undecided == 0:
		return finished
	case o.away && o.stuck >= maxStuck:
		return release
	case o.away:
		return later
	case o.blamed, o.progress, o.expired:
		return again
	case o.body:
		return fetch
	case o.waiting:
		return wait
	}
	return stuck
}
