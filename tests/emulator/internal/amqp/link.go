package amqp

import "fmt"

// LinkHandler receives the events of one link. All but Detached come from the connection's
// reader, one at a time; Detached comes exactly once, from any goroutine, and nothing follows
// it except events already under way. No lock is held during a call.
type LinkHandler interface {
	// Transfer is a complete message from the client. data is the handler's to keep.
	Transfer(d Delivery, data []byte)
	// Settle is the client's outcome for a delivery we sent it.
	Settle(s Settlement)
	// Credit is called when the link may have credit to send. If the client gave credit before its
	// attach was answered, the goroutine that answers it makes the call.
	Credit()
	// Detached is called when the link is gone, for any reason.
	Detached()
}

// Delivery identifies an incoming message.
type Delivery struct {
	ID      uint32
	Format  uint32
	Settled bool // the client wants no answer
}

// Settlement is the client's outcome for an outgoing delivery. Unless Settled, it waits for
// Link.ReplySettled.
type Settlement struct {
	DeliveryID uint32
	Tag        UUID
	State      State
	Settled    bool
}

type linkState uint8

const (
	linkPending   linkState = iota // attach received, not answered
	linkAttached                   //
	linkDetaching                  // our detach is sent, the client's awaited
	linkGone                       // the handler has been informed or is about to be
)

// Link is one link the client opened. The exported fields do not change.
type Link struct {
	// Name is the client's name for the link.
	Name string
	// PeerSends is true when messages flow from the client to us.
	PeerSends          bool
	SenderSettleMode   uint8
	ReceiverSettleMode uint8
	Source             *Terminus
	Target             *Terminus
	Properties         map[Symbol]any

	sess    *session
	handle  uint32 // the client's
	ours    uint32 // what we write
	terse   terse
	handler LinkHandler // set before any frame after the attach is read

	// Guarded by conn.mu.
	state         linkState
	credit        uint32 // of the sending side, whichever it is
	deliveryCount uint32
	drain         bool
	creditLimit   uint32 // PeerSends: what we replenish to
	maxSize       uint64 // bytes of one message: of the client's attach, then PeerSends: ours
	rejectLarger  bool

	// The message being put together; only the reader's goroutine touches these.
	partial   []byte
	delivery  Delivery
	size      uint64 // of what has come of it
	assembles bool
}

// Address returns the entity the client wants to talk to.
func (l *Link) Address() string {
	if l.PeerSends {
		return l.Target.Address()
	}
	return l.Source.Address()
}

func (s *session) attach(f *fields) error {
	var p Attach
	if err := p.decode(f); err != nil {
		return err
	}
	l := &Link{
		Name: p.Name, PeerSends: !p.Receiver, sess: s, handle: p.Handle,
		SenderSettleMode: p.SenderSettleMode, ReceiverSettleMode: p.ReceiverSettleMode,
		Source: p.Source, Target: p.Target, Properties: p.Properties,
		terse: p.terse, maxSize: p.MaxMessageSize,
	}
	l.terse.deliveryCount = s.conn.opts.Terse
	c := s.conn
	c.mu.Lock()
	if s.ended {
		c.mu.Unlock()
		return nil
	}
	var broken *Error
	switch {
	case s.links[p.Handle] != nil:
		broken = &Error{Condition: CondHandleInUse, Description: fmt.Sprintf("handle %d is attached", p.Handle)}
	case p.Handle > handleMax:
		broken = tooManyHandles(handleMax)
	}
	if broken != nil {
		c.mu.Unlock()
		s.fail(broken)
		return nil
	}
	s.links[p.Handle] = l
	c.links++
	full := c.links > linksMax
	l.ours = s.handle()
	c.mu.Unlock()
	why := p.unsupported()
	if why == nil && full {
		why = tooManyHandles(linksMax)
	}
	if why != nil {
		l.handler = refused{}
		l.Refuse(why)
		return nil
	}
	l.handler = c.opts.OnAttach(l)
	return nil
}

func tooManyHandles(limit int) *Error {
	return &Error{
		Condition:   CondResourceLimit,
		Description: fmt.Sprintf("Cannot allocate more handles. The maximum number of handles allowed is %d.", limit),
	}
}

// refused ignores what a client still sends on a link that was refused.
type refused struct{}

func (refused) Transfer(Delivery, []byte) {}
func (refused) Settle(Settlement)         {}
func (refused) Credit()                   {}
func (refused) Detached()                 {}

// Terms are the server's side of an attach.
type Terms struct {
	Source         *Terminus // nil: echo the client's
	Target         *Terminus // nil: echo the client's
	Properties     map[Symbol]any
	MaxMessageSize uint64 // bytes; must not be 0 when the client sends
	RejectTooLarge bool   // a larger message is rejected; otherwise the link is detached
	Credit         uint32 // when the client sends: how many messages it may have under way
}

// Accept answers the attach. It returns false if the link is already gone; the caller must then
// release what it reserved for the link.
func (l *Link) Accept(t Terms) bool {
	early, ok := l.accept(t)
	if early { // credit counts from when the client sent it [AMQP-2.7.4]
		l.notifyCredit()
	}
	return ok
}

// accept is Accept. early reports whether the client has given credit, or drained it, already.
func (l *Link) accept(t Terms) (early, ok bool) {
	c := l.sess.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkPending || c.closing {
		return false, false
	}
	if l.maxSize > 0 { // the client's, which ours must not exceed
		t.MaxMessageSize = min(t.MaxMessageSize, l.maxSize)
	}
	p := Attach{
		Name: l.Name, Handle: l.ours, Receiver: l.PeerSends,
		SenderSettleMode: l.SenderSettleMode, ReceiverSettleMode: l.ReceiverSettleMode, terse: l.terse,
		Source: l.Source, Target: l.Target, MaxMessageSize: t.MaxMessageSize, Properties: t.Properties,
	}
	if t.Source != nil {
		p.Source = t.Source
	}
	if t.Target != nil {
		p.Target = t.Target
	}
	if !c.append(l.sess.channel, p.append) {
		return false, false
	}
	l.state = linkAttached
	if l.PeerSends {
		l.credit, l.creditLimit, l.maxSize, l.rejectLarger = t.Credit, t.Credit, t.MaxMessageSize, t.RejectTooLarge
		l.sess.sendFlow(l)
		return false, true
	}
	return l.credit > 0 || l.drain, true
}

// Refuse answers the attach without a terminus and detaches [AMQP-2.6.3].
func (l *Link) Refuse(reason *Error) {
	c := l.sess.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkPending {
		return
	}
	l.refuseLocked(reason)
	l.state = linkDetaching
}

func (l *Link) refuseLocked(reason *Error) {
	p := Attach{
		Name: l.Name, Handle: l.ours, Receiver: l.PeerSends,
		SenderSettleMode: l.SenderSettleMode, ReceiverSettleMode: l.ReceiverSettleMode, terse: l.terse,
	}
	d := Detach{Handle: l.ours, Closed: true, Err: l.sess.conn.traced(reason)}
	l.sess.conn.append(l.sess.channel, p.append)
	l.sess.conn.append(l.sess.channel, d.append)
}

// Detach closes the link from our side, with a reason. The handler is informed once the client has
// answered.
func (l *Link) Detach(reason *Error) {
	c := l.sess.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttached {
		return
	}
	l.state = linkDetaching
	l.dropPendingLocked()
	d := Detach{Handle: l.ours, Closed: true, Err: l.sess.conn.traced(reason)}
	c.append(l.sess.channel, d.append)
}

// dropPendingLocked forgets transfers of this link that were not written and deliveries that
// can no longer be settled on it. A partly written multi-frame message is implicitly aborted
// by the detach.
func (l *Link) dropPendingLocked() {
	s := l.sess
	for id, d := range s.unsettled {
		if d.link == l {
			delete(s.unsettled, id)
		}
	}
	kept := s.pending[:0]
	for _, p := range s.pending {
		if p.link != l {
			kept = append(kept, p)
		}
	}
	s.pending = kept
}

// detach handles the client's detach [AMQP-2.6.6].
func (s *session) detach(f *fields) error {
	var p Detach
	if err := p.decode(f); err != nil {
		return err
	}
	c := s.conn
	c.mu.Lock()
	l := s.links[p.Handle]
	if l == nil || s.ended {
		ended := s.ended
		c.mu.Unlock()
		if !ended {
			s.fail(&Error{Condition: CondUnattachedHandle, Description: fmt.Sprintf("detach of handle %d", p.Handle)})
		}
		return nil
	}
	delete(s.links, p.Handle)
	delete(s.handles, l.ours)
	c.links--
	l.dropPendingLocked()
	was := l.state
	l.state = linkGone
	c.mu.Unlock()
	// Before the answer, as in session.end.
	notifyDetached([]*Link{l})
	c.mu.Lock()
	defer c.mu.Unlock()
	switch was {
	case linkPending:
		l.refuseLocked(nil)
	case linkAttached:
		d := Detach{Handle: l.ours, Closed: true}
		c.append(s.channel, d.append)
	case linkDetaching, linkGone:
	}
	return nil
}

func notifyDetached(gone []*Link) {
	for _, l := range gone {
		if l.handler != nil {
			l.handler.Detached()
		}
	}
}
