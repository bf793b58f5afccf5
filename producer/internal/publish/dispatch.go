package publish

import (
	"context"
	"sync"
	"time"
)

// dispatcher leases sessions to lanes, each session to one lane at a time, and limits how many
// lanes have a batch outstanding. It is safe for concurrent use. No I/O happens under its mutex.
type dispatcher struct {
	minLanes int // with fewer outstanding batches, waiting items are sent at once
	sessions *sessionLimit
	batch    int    // maximum number of messages in a batch
	spawn    func() // starts a lane; set by run before any lane starts

	mu          sync.Mutex
	changed     *sync.Cond // signalled whenever a lane may have something to do
	schedule    *schedule
	window      *congestionWindow
	pace        pace
	pausing     bool // a timer wakes the lanes when the pace permits the next batch
	outstanding int  // lanes between begin and end
	idle        int  // lanes waiting in begin
	closed      bool
	halted      bool // a lane has failed: no further batch begins
	// the first event that can never be sent; only items before it are sent; nil without one
	unsendable *unsendable
}

func newDispatcher(c Config, sessions *sessionLimit) *dispatcher {
	d := &dispatcher{
		minLanes: c.Lanes, sessions: sessions, batch: c.BatchMessages,
		schedule: newSchedule(), window: newCongestionWindow(c.Lanes, c.MaxLanes),
	}
	d.changed = sync.NewCond(&d.mu)
	return d
}

func (d *dispatcher) push(i *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unsendable != nil {
		return // the item is behind the unsendable event
	}
	d.schedule.push(i)
	d.wake()
}

// close records that no further item will be pushed.
func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.wake()
}

// halt prevents any further batch from beginning.
func (d *dispatcher) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.halted = true
	d.changed.Broadcast()
}

// haltAt prevents the event and everything behind it from being sent. It returns false if an
// earlier event already does.
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

// haltError returns the error of the first event that can never be sent, or nil.
func (d *dispatcher) haltError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unsendable == nil {
		return nil
	}
	return d.unsendable.why
}

// worthBatch reports whether the ready items are worth another batch. The caller holds mu, as in
// canBegin, finished and wake.
func (d *dispatcher) worthBatch() bool {
	if d.sessions.mixed() && d.outstanding >= d.minLanes {
		// A mixed batch has room for items that arrive while others are outstanding, so further
		// lanes are used only for full batches.
		return d.schedule.ready >= d.batch
	}
	return d.schedule.ready > 0
}

// canBegin reports whether a batch may begin now.
func (d *dispatcher) canBegin() bool {
	if d.halted || d.outstanding >= d.window.limit() || !d.worthBatch() {
		return false
	}
	wait := d.pace.wait(time.Now())
	if wait > 0 && !d.pausing {
		d.pausing = true
		time.AfterFunc(wait, d.resume)
	}
	return wait <= 0
}

// resume wakes a lane when the pace permits the next batch.
func (d *dispatcher) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pausing = false
	d.wake()
}

// filled records how many messages a batch that has begun has.
func (d *dispatcher) filled(messages int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pace.filled(messages)
}

// finished reports whether no batch will ever begin again.
func (d *dispatcher) finished() bool {
	return d.halted || (d.closed || d.unsendable != nil) && d.schedule.waiting == 0
}

func (d *dispatcher) wake() {
	switch {
	case d.finished():
		d.changed.Broadcast()
	case d.canBegin():
		d.changed.Signal() // the lane that wakes up wakes the next one if more can begin
	}
}

// begin waits until a batch may be sent and leases its first session. It returns nil if this lane
// is not needed any more. The error is the cause of ctx; the caller that ends ctx wakes the
// dispatcher with [dispatcher.interrupt].
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
	d.pace.begin(time.Now())
	if d.idle == 1 && d.outstanding < d.window.maxSize { // only this lane is idle: another must wait for the next items
		d.spawn()
	} else {
		d.wake()
	}
	return b, nil
}

// leaseNext leases another session for a batch that has room. It returns nil if none is ready.
func (d *dispatcher) leaseNext() *backlog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule.lease()
}

// peek returns the first items of a leased session, at most a batch. Only the lane that holds the
// lease may change them.
func (d *dispatcher) peek(b *backlog, most int) []*item {
	d.mu.Lock()
	defer d.mu.Unlock()
	return b.items[:min(most, len(b.items))]
}

// take records that the first n items of a leased session are in a batch. With n = 0 the lease
// ends.
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

// end releases the sessions of a batch of so many messages that was acknowledged after latency.
func (d *dispatcher) end(sessions []*backlog, messages int, latency time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.schedule.release(sessions...)
	now := time.Now()
	d.pace.acknowledged(now, messages)
	d.window.acknowledged(now, latency, d.outstanding >= d.window.limit() && d.worthBatch())
	d.outstanding--
	d.wake()
}

// abandon releases the sessions of a batch that will never be sent.
func (d *dispatcher) abandon(sessions ...*backlog) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.schedule.release(sessions...)
	d.outstanding--
	d.wake()
}

// leaseEmpty leases a session that has no items waiting or outstanding. It returns nil if it has
// any.
func (d *dispatcher) leaseEmpty(session string) *backlog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.schedule.leaseEmpty(session)
}

// release releases some sessions of a batch whose other sessions are still outstanding.
func (d *dispatcher) release(sessions ...*backlog) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.schedule.release(sessions...)
	d.wake()
}

// isolate takes a batch out of the congestion window while its messages are sent in smaller parts.
// Its sessions stay leased. A suspect batch must not block the others, and its latency indicates
// nothing about congestion.
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
	now := time.Now()
	d.window.throttled(now)
	d.pace.throttled(now)
}

// limit returns how many batches may be outstanding now.
func (d *dispatcher) limit() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.window.limit()
}

// interrupt makes every idle lane check its context.
func (d *dispatcher) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed.Broadcast()
}
