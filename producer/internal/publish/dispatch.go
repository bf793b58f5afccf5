package publish

import (
	"context"
	"sync"
	"time"
)

// dispatcher hands sessions to lanes, each to one at a time, and bounds how many lanes have a batch outstanding. It is
// safe for concurrent use; no I/O happens under its mutex.
type dispatcher struct {
	minLanes int    // below so many, whatever waits is sent at once
	mixed    bool   // a batch takes many sessions
	batch    int    // messages in a batch, at most
	spawn    func() // starts a lane; set by run before any lane starts

	mu          sync.Mutex
	changed     *sync.Cond // whenever a lane may have something to do
	schedule    *schedule
	window      *congestionWindow
	outstanding int // lanes between begin and end
	idle        int // lanes in begin
	closed      bool
	halted      bool        // a lane has failed: what is outstanding is the last
	unsendable  *unsendable // the first event that can never be sent; what lies before it is the last; nil: there is none
}

func newDispatcher(c Config) *dispatcher {
	d := &dispatcher{
		minLanes: c.Lanes, mixed: c.Scope == ScopeMixed, batch: c.BatchMessages,
		schedule: newSchedule(), window: newCongestionWindow(c.Lanes, c.MaxLanes),
	}
	d.changed = sync.NewCond(&d.mu)
	return d
}

func (d *dispatcher) push(i *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unsendable != nil {
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

// haltAt says that no batch is begun any more with an event or what lies behind it. It reports whether that is news.
func (d *dispatcher) haltAt(e *unsendable) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unsendable != nil && d.unsendable.sequence <= e.sequence {
		return false
	}
	d.unsendable = e
	d.schedule.dropFrom(e.sequence)
	d.wake()
	return true
}

// haltError is the error of the first event that can never be sent; nil where there is none.
func (d *dispatcher) haltError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unsendable == nil {
		return nil
	}
	return d.unsendable.why
}

// worthBatch says whether what is ready is worth another batch. The caller holds mu, as in due, done and wake.
func (d *dispatcher) worthBatch() bool {
	if d.mixed && d.outstanding >= d.minLanes {
		// A mixed batch has room for what comes while the others are outstanding: more lanes are worth it for full ones.
		return d.schedule.ready >= d.batch
	}
	return d.schedule.ready > 0
}

// canBegin says whether a batch may be begun now.
func (d *dispatcher) canBegin() bool {
	return !d.halted && d.outstanding < d.window.limit() && d.worthBatch()
}

// finished says that no batch will ever be begun again.
func (d *dispatcher) finished() bool {
	return d.halted || (d.closed || d.unsendable != nil) && d.schedule.waiting == 0
}

func (d *dispatcher) wake() {
	switch {
	case d.finished():
		d.changed.Broadcast()
	case d.canBegin():
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
	for !d.canBegin() {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case d.finished(), d.idle > d.minLanes:
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
	case d.idle == 1 && d.outstanding < d.window.maxSize: // but for this one: somebody must be there for what comes next
		d.spawn()
	default:
		d.wake()
	}
	return b, nil
}

// leaseNext leases another session for a batch that has room, nil when none is ready.
func (d *dispatcher) leaseNext() *backlog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule.lease()
}

// peek are the first items of a leased session, up to a batch. They may be changed by the lane that holds the lease.
func (d *dispatcher) peek(b *backlog, most int) []*item {
	d.mu.Lock()
	defer d.mu.Unlock()
	return b.items[:min(most, len(b.items))]
}

// take says that the first n items of a leased session are in a batch. Where n is 0 the lease ends.
func (d *dispatcher) take(b *backlog, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n == 0 {
		d.schedule.returnLease(b)
	} else {
		d.schedule.take(b, n)
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
	d.window.acknowledged(time.Now(), latency, d.outstanding >= d.window.limit() && d.worthBatch())
	d.outstanding--
	d.wake()
}

// abandon releases the sessions of a batch that will never be sent.
func (d *dispatcher) abandon(sessions ...*backlog) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range sessions {
		d.schedule.release(b)
	}
	d.outstanding--
	d.wake()
}

// leaseEmpty leases a session of which nothing waits and nothing is under way; nil where something does.
func (d *dispatcher) leaseEmpty(session string) *backlog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule.leaseEmpty(session)
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

// isolate says that a batch is sent in parts and apart from now on: it keeps its sessions and takes no part in the window any more,
// or a message that is suspect could keep everything else from passing. Its end says nothing about how fast batches are acknowledged.
func (d *dispatcher) isolate() {
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
