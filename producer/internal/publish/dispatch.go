package publish

import (
	"context"
	"sync"
	"time"
)

// dispatcher hands sessions to lanes, each to one at a time, and bounds how many lanes have a batch outstanding. It is
// safe for concurrent use; no I/O happens under its mutex.
type dispatcher struct {
	lanes int    // below so many, whatever waits is sent at once
	mixed bool   // a batch takes many sessions
	batch int    // messages in a batch, at most
	spawn func() // starts a lane; set by run before any lane starts

	mu          sync.Mutex
	changed     *sync.Cond // whenever a lane may have something to do
	schedule    *schedule
	window      *window
	outstanding int // lanes between begin and end
	idle        int // lanes in begin
	closed      bool
	halted      bool    // a lane has failed: what is outstanding is the last
	doom        *doomed // the first event that can never be sent; what lies before it is the last; nil: there is none
}

func newDispatcher(c Config) *dispatcher {
	d := &dispatcher{
		lanes: c.Lanes, mixed: c.Scope == ScopeMixed, batch: c.BatchMessages,
		schedule: newSchedule(), window: newWindow(c.Lanes, c.MaxLanes),
	}
	d.changed = sync.NewCond(&d.mu)
	return d
}

func (d *dispatcher) push(i *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doom != nil {
		return // it lies behind
	}
	d.schedule.push(i)
	d.wake()
}

// close says that nothing is pushed any more.
func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.wake()
}

// halt says that no batch is begun any more, whatever waits.
func (d *dispatcher) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.halted = true
	d.changed.Broadcast()
}

// stopBefore says that no batch is begun any more with an event or what lies behind it. It reports whether that is news.
func (d *dispatcher) stopBefore(e *doomed) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doom != nil && d.doom.sequence <= e.sequence {
		return false
	}
	d.doom = e
	d.schedule.cut(e.sequence)
	d.wake()
	return true
}

// doomed is the error of the first event that can never be sent; nil where there is none.
func (d *dispatcher) doomed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doom == nil {
		return nil
	}
	return d.doom.why
}

// enough says whether what is ready is worth another batch. The caller holds mu, as in due, done and wake.
func (d *dispatcher) enough() bool {
	if d.mixed && d.outstanding >= d.lanes {
		// A mixed batch has room for what comes while the others are outstanding: more lanes are worth it for full ones.
		return d.schedule.ready >= d.batch
	}
	return d.schedule.ready > 0
}

// due says whether a batch may be begun now.
func (d *dispatcher) due() bool { return !d.halted && d.outstanding < d.window.limit() && d.enough() }

// done says that no batch will ever be begun again.
func (d *dispatcher) done() bool {
	return d.halted || (d.closed || d.doom != nil) && d.schedule.waiting == 0
}

func (d *dispatcher) wake() {
	switch {
	case d.done():
		d.changed.Broadcast()
	case d.due():
		d.changed.Signal() // who wakes up wakes the next one, if more is due
	}
}

// begin waits until a batch may be sent and leases its first session. nil means that this lane is not needed any more.
// The error is ctx's cause; whoever ends ctx wakes the dispatcher with [dispatcher.interrupt].
func (d *dispatcher) begin(ctx context.Context) (*backlog, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle++
	defer func() { d.idle-- }()
	for !d.due() {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case d.done(), d.idle > d.lanes:
			return nil, nil
		}
		d.changed.Wait()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	b := d.schedule.lease()
	d.outstanding++
	switch {
	case d.idle == 1 && d.outstanding < d.window.most: // but for this one: somebody must be there for what comes next
		d.spawn()
	default:
		d.wake()
	}
	return b, nil
}

// more leases another session for a batch that has room, nil when none is ready.
func (d *dispatcher) more() *backlog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule.lease()
}

// waiting are the first items of a leased session, up to a batch. They may be changed by the lane that holds the lease.
func (d *dispatcher) waiting(b *backlog, most int) []*item {
	d.mu.Lock()
	defer d.mu.Unlock()
	return b.items[:min(most, len(b.items))]
}

// taken says that the first n items of a leased session are in a batch. Where n is 0 the lease ends.
func (d *dispatcher) taken(b *backlog, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n == 0 {
		d.schedule.unlease(b)
	} else {
		d.schedule.taken(b, n)
	}
	d.wake()
}

// end releases the sessions of a batch that was acknowledged after latency.
func (d *dispatcher) end(sessions []*backlog, latency time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range sessions {
		d.schedule.release(b)
	}
	d.window.acknowledged(time.Now(), latency, d.outstanding >= d.window.limit() && d.enough())
	d.outstanding--
	d.wake()
}

// drop releases the sessions of a batch that will never be sent.
func (d *dispatcher) drop(sessions ...*backlog) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range sessions {
		d.schedule.release(b)
	}
	d.outstanding--
	d.wake()
}

// hold leases a session of which nothing waits and nothing is under way; nil where something does.
func (d *dispatcher) hold(session string) *backlog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule.hold(session)
}

// release releases sessions of a batch that is sent in parts, whose other sessions are still under way.
func (d *dispatcher) release(sessions ...*backlog) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range sessions {
		d.schedule.release(b)
	}
	d.wake()
}

// setApart says that a batch is sent in parts and apart from now on: it keeps its sessions and takes no part in the window any more,
// or a message that is suspect could keep everything else from passing. Its end says nothing about how fast batches are acknowledged.
func (d *dispatcher) setApart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outstanding--
	if d.idle == 0 {
		d.spawn()
	} else {
		d.wake()
	}
}

func (d *dispatcher) throttled() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.window.throttled(time.Now())
}

// limit is how many batches may be outstanding now.
func (d *dispatcher) limit() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.limit()
}

// interrupt makes every idle lane look at its context.
func (d *dispatcher) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed.Broadcast()
}
