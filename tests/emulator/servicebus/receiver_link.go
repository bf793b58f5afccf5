package servicebus

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

const (
	sessionFilter amqp.Symbol = "com.microsoft:session-filter"
	// codeSessionFilter is the descriptor by which the service knows a described session filter.
	// Every official client that describes the filter sends it.
	codeSessionFilter uint64 = 0x137000000C

	propTimeout     amqp.Symbol = "com.microsoft:timeout"
	propLockedUntil amqp.Symbol = "com.microsoft:locked-until-utc"

	// pumpBatch is how many messages leave the broker under one lock.
	pumpBatch = 64
)

// receiverLink delivers the messages of an entity, or of one session of it.
type receiverLink struct {
	client   *client
	link     *amqp.Link
	entity   *broker.Entity
	receiver broker.Receiver
	opening  fault // what happens once it is open

	// pumps counts calls of pump that are not served yet. The goroutine that raises it from zero
	// serves them all, so two goroutines never send at once and none waits for another: a wake-up
	// may come from inside another link's pump.
	pumps atomic.Int64
	// unpaid is set while messages wait until the namespace has credits again.
	unpaid atomic.Bool
	batch  []broker.Delivery // pump's
	buf    []byte            // pump's
}

var _ amqp.LinkHandler = (*receiverLink)(nil)

func (c *client) openReceiver(l *amqp.Link, address string) (amqp.LinkHandler, error) {
	e, err := c.server.broker.Entity(address)
	if err != nil {
		return nil, err
	}
	for _, name := range l.Source.FilterNames() {
		if name != string(sessionFilter) {
			return nil, refusal(amqp.CondNotImplemented, fmt.Sprintf("filter '%s' is not supported by this emulator", name))
		}
	}
	c.server.operations.add(OperationAccept)
	f := c.server.strike(accepting, 1, creditsOfRequest)
	switch {
	case f.drop:
		c.conn.Close()
		return ignored{}, nil
	case f.busy:
		return nil, f.refusal()
	}
	r := &receiverLink{client: c, link: l, entity: e, opening: f}
	r.receiver = broker.Receiver{
		Name: l.Name, DeleteOnReceive: l.SenderSettleMode == amqp.SenderSettled,
		Wake: r.Credit, Accepted: r.accepted,
		Lost: func(e *broker.Error) { l.Detach(wireError(e)) },
	}
	filter, sessions := l.Source.Filter(sessionFilter, codeSessionFilter)
	if !sessions {
		if err := e.Open(&r.receiver); err != nil {
			return nil, err
		}
		r.open(amqp.Terms{})
		return r, nil
	}
	var id *string
	switch v := filter.(type) {
	case nil:
	case string:
		id = &v
	default:
		return nil, refusal(amqp.CondInvalidField, fmt.Sprintf("the session filter is %T, not a string", v))
	}
	timeout := c.server.opts.AcceptTimeout
	switch ms := l.Properties[propTimeout].(type) {
	case nil:
	case uint32:
		timeout = time.Duration(ms) * time.Millisecond
	default:
		return nil, refusal(amqp.CondInvalidField, fmt.Sprintf("%s is %T, not a uint", propTimeout, ms))
	}
	if c.server.answersAccepts(AnswerNothing) {
		return ignored{}, nil
	}
	if err := e.AcceptSession(&r.receiver, id, timeout); err != nil {
		return nil, err
	}
	return r, nil
}

// accepted is the outcome of AcceptSession.
func (r *receiverLink) accepted(g broker.SessionGrant, err error) {
	switch answers := r.client.server.answersAccepts; {
	case err != nil && answers(AnswerNoReason):
		r.link.Refuse(nil)
		return
	case err != nil:
		r.link.Refuse(wireError(err))
		return
	}
	source := r.link.Source.WithFilter(sessionFilter, g.SessionID)
	if r.client.server.answersAccepts(AnswerBare) {
		source = bare(r.link.Source, sessionFilter, g.SessionID)
	}
	r.open(amqp.Terms{
		Source:     source,
		Properties: map[amqp.Symbol]any{propLockedUntil: ticks(g.LockedUntil)},
	})
}

// open answers the attach.
func (r *receiverLink) open(t amqp.Terms) {
	if r.opening.loseAck {
		r.client.conn.Close()
		return
	}
	r.client.later.after(r.client.server.delay(accepting), func() {
		if !r.link.Accept(t) {
			r.entity.Close(&r.receiver) // the client gave up while we were granting
			return
		}
		if r.opening.detach {
			r.opening.detachNow(r.link)
		}
	})
}

// ticks returns .NET's ticks: 100 ns since the year 1.
func ticks(t time.Time) int64 {
	const unixEpoch = 621355968000000000
	return unixEpoch + t.UnixNano()/100
}

// Transfer cannot happen: the client receives on this link.
func (r *receiverLink) Transfer(amqp.Delivery, []byte) {}

// Credit implements amqp.LinkHandler.
func (r *receiverLink) Credit() {
	r.client.later.after(r.client.server.delay(receiving), r.pump)
}

// Detached implements amqp.LinkHandler.
func (r *receiverLink) Detached() { r.entity.Close(&r.receiver) }

// pump sends what there is and the link has credit for.
func (r *receiverLink) pump() {
	if r.pumps.Add(1) != 1 {
		return
	}
	for {
		seen := r.pumps.Load()
		for r.sendBatch() {
		}
		if r.pumps.CompareAndSwap(seen, 0) {
			return
		}
	}
}

// sendBatch reports whether there may be more.
func (r *receiverLink) sendBatch() bool {
	server := r.client.server
	affordable, wait := server.credits.affordable()
	n := min(r.link.Credit(), pumpBatch, affordable)
	if affordable == 0 {
		if !r.unpaid.Swap(true) {
			r.client.later.after(wait, func() {
				r.unpaid.Store(false)
				r.pump()
			})
		}
		return false
	}
	r.batch = r.entity.Take(&r.receiver, n, r.batch[:0])
	defer func() { clear(r.batch) }()
	if len(r.batch) == 0 {
		return false
	}
	server.credits.owe(creditsOfMessage * len(r.batch))
	f := server.strike(receiving, 1, 0)
	switch {
	case f.drop:
		r.client.conn.Close() // what was taken goes back with the session, or when its locks run out
		return false
	case f.busy, f.detach:
		if f.busy {
			r.link.Detach(wireError(f.refusal()))
		} else {
			f.detachNow(r.link)
		}
		r.giveBack(r.batch)
		return false
	}
	for i := range r.batch {
		d := &r.batch[i]
		var err error
		if r.buf, err = appendDelivery(r.buf[:0], d); err != nil {
			r.link.Detach(&amqp.Error{Condition: amqp.CondInternalError, Description: err.Error()})
		}
		tag := tagOf(d.Token)
		if err != nil || !r.link.Send(tag[:], r.receiver.DeleteOnReceive, r.buf) {
			r.giveBack(r.batch[i:])
			return false
		}
	}
	if f.loseAck {
		r.client.conn.Close()
		return false
	}
	return len(r.batch) == n
}

// giveBack returns messages that were taken and could not be sent.
func (r *receiverLink) giveBack(ds []broker.Delivery) {
	if r.receiver.DeleteOnReceive {
		return // the risk of that mode
	}
	for _, d := range ds {
		// An error means the lock is gone, and then the message is back already.
		_ = r.entity.Settle(&r.receiver, d.Token, broker.Settlement{Outcome: broker.Release})
	}
}

// Settle applies the client's outcome and answers with it, or with why it did not apply.
func (r *receiverLink) Settle(x amqp.Settlement) {
	server := r.client.server
	server.operations.add(OperationSettle)
	f := server.strike(settling, 1, 0)
	if f.drop {
		r.client.conn.Close()
		return
	}
	err := f.refusal()
	if !f.busy {
		if server.strikesLock() {
			r.entity.ExpireLock(&r.receiver, tokenOf(x.Tag))
		}
		err = r.entity.Settle(&r.receiver, tokenOf(x.Tag), settlementOf(x.State))
	}
	switch {
	case err != nil:
	case f.loseAck:
		r.client.conn.Close()
		return
	case f.detach:
		f.detachNow(r.link)
		return
	}
	if x.Settled {
		return
	}
	answer := amqp.State{Outcome: x.State.Outcome} // a rejection without error: it was applied
	if err != nil {
		answer = amqp.State{Outcome: amqp.Rejected, Err: wireError(err)}
	}
	r.client.later.after(server.delay(settling), func() { r.link.ReplySettled(x.DeliveryID, answer) })
}

// settlementOf translates AMQP's outcomes to the service's.
func settlementOf(s amqp.State) broker.Settlement {
	switch s.Outcome {
	case amqp.Accepted:
		return broker.Settlement{Outcome: broker.Complete}
	case amqp.Modified:
		out := broker.Settlement{Outcome: broker.Abandon, Modify: s.Annotations}
		if s.UndeliverableHere {
			out.Outcome = broker.Defer
		}
		return out
	case amqp.Rejected:
		out := broker.Settlement{Outcome: broker.DeadLetterIt}
		if s.Err == nil {
			return out
		}
		if !strings.EqualFold(string(s.Err.Condition), "com.microsoft:dead-letter") {
			out.Reason, out.Description = string(s.Err.Condition), s.Err.Description
		}
		for k, v := range s.Err.Info {
			text, _ := v.(string)
			switch k {
			case propReason:
				out.Reason = text
			case propDescription:
				out.Description = text
			default:
				if out.Modify == nil {
					out.Modify = make(map[string]any)
				}
				out.Modify[k] = v
			}
		}
		return out
	case amqp.NoState, amqp.Received, amqp.Released:
	}
	return broker.Settlement{Outcome: broker.Release}
}
