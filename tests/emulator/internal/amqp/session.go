package amqp

import "fmt"

// incomingWindow is how many transfer frames we let a client send ahead of our flow frames.
const incomingWindow = 5000

// session is one AMQP session. Its fields are guarded by conn.mu, except received, which only
// the reader's goroutine touches.
type session struct {
	conn    *Conn
	channel uint16
	ended   bool // our end is sent: nothing may be written on the channel any more
	links   map[uint32]*Link

	// Outgoing transfers [AMQP-2.5.6].
	nextOutgoingID uint32
	remoteWindow   uint32 // transfer frames the client takes
	nextDeliveryID uint32
	pending        []pendingTransfer // waits for remoteWindow
	unsettled      map[uint32]unsettledDelivery

	// Incoming transfers.
	nextIncomingID uint32
	sinceFlow      uint32 // frames received since our last flow
}

type pendingTransfer struct {
	link  *Link
	frame []byte // a complete frame
}

type unsettledDelivery struct {
	link *Link
	tag  UUID
}

func (c *Conn) begin(channel uint16, f *fields) error {
	var p Begin
	if err := p.decode(f); err != nil {
		return err
	}
	if p.HasRemoteChannel {
		return &Error{Condition: CondNotAllowed, Description: "begin answers a session the server did not begin"}
	}
	if channel > channelMax {
		return &Error{Condition: CondNotAllowed, Description: fmt.Sprintf("channel %d above channel-max %d", channel, channelMax)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[channel] != nil {
		return &Error{Condition: CondNotAllowed, Description: fmt.Sprintf("channel %d is in use", channel)}
	}
	c.sessions[channel] = &session{
		conn: c, channel: channel, links: make(map[uint32]*Link),
		nextIncomingID: p.NextOutgoingID, remoteWindow: p.IncomingWindow,
		unsettled: make(map[uint32]unsettledDelivery),
	}
	reply := Begin{
		RemoteChannel: channel, HasRemoteChannel: true,
		IncomingWindow: incomingWindow, OutgoingWindow: incomingWindow, HandleMax: p.HandleMax,
	}
	c.append(channel, func(b []byte) ([]byte, error) { return reply.append(b), nil })
	return nil
}

// frame handles one frame of this session, in the reader's goroutine.
func (s *session) frame(desc uint64, f *fields, rest *Reader) error {
	switch desc {
	case descAttach:
		return s.attach(f)
	case descFlow:
		return s.flow(f)
	case descTransfer:
		return s.transfer(f, rest.buf)
	case descDisposition:
		return s.disposition(f)
	case descDetach:
		return s.detach(f)
	case descEnd:
		return s.end(f)
	default:
		return malformed("unknown performative %#x", desc)
	}
}

// end answers the client's end [AMQP-2.5.5].
func (s *session) end(f *fields) error {
	e := ending{}
	if err := e.decode(f); err != nil {
		return err
	}
	c := s.conn
	c.mu.Lock()
	ended := s.ended
	gone := s.endLocked()
	delete(c.sessions, s.channel)
	c.mu.Unlock()
	// Before the answer: a client that has closed a link may count on what it held being free.
	notifyDetached(gone)
	if !ended {
		c.mu.Lock()
		c.appendEnding(s.channel, descEnd, nil)
		c.mu.Unlock()
	}
	return nil
}

// fail ends the session with an error; the client answers with its own end.
func (s *session) fail(reason *Error) {
	c := s.conn
	c.mu.Lock()
	var gone []*Link
	if !s.ended {
		gone = s.endLocked()
		c.appendEnding(s.channel, descEnd, reason)
	}
	c.mu.Unlock()
	notifyDetached(gone)
}

// endLocked marks the session ended and returns the links whose handlers have to be told.
func (s *session) endLocked() []*Link {
	s.ended = true
	var gone []*Link
	for _, l := range s.links {
		if l.state != linkGone {
			l.state = linkGone
			gone = append(gone, l)
		}
	}
	s.links = make(map[uint32]*Link)
	s.pending, s.unsettled = nil, make(map[uint32]unsettledDelivery)
	return gone
}

func (s *session) flow(f *fields) error {
	var p Flow
	if err := p.decode(f); err != nil {
		return err
	}
	c := s.conn
	c.mu.Lock()
	if s.ended {
		c.mu.Unlock()
		return nil
	}
	s.nextIncomingID = p.NextOutgoingID
	// [AMQP-2.5.6] remote-incoming-window; before the client saw our begin it counts from our
	// initial id, which is 0.
	s.remoteWindow = p.NextIncomingID + p.IncomingWindow - s.nextOutgoingID
	s.flushPending()
	var l *Link
	if p.HasHandle {
		if l = s.links[p.Handle]; l == nil {
			c.mu.Unlock()
			s.fail(&Error{Condition: CondUnattachedHandle, Description: fmt.Sprintf("flow for handle %d", p.Handle)})
			return nil
		}
		l.flowLocked(&p)
	} else if p.Echo {
		s.sendFlow(nil)
	}
	c.mu.Unlock()
	if l != nil && !l.PeerSends {
		l.notifyCredit()
	}
	return nil
}

// sendFlow writes a flow for the session and, when l is given, the link; conn.mu is held.
func (s *session) sendFlow(l *Link) {
	p := Flow{
		NextIncomingID: s.nextIncomingID, HasNextIncomingID: true, IncomingWindow: incomingWindow,
		NextOutgoingID: s.nextOutgoingID, OutgoingWindow: incomingWindow,
	}
	s.sinceFlow = 0
	if l != nil {
		p.Handle, p.HasHandle = l.handle, true
		p.DeliveryCount, p.HasDeliveryCount = l.deliveryCount, true
		p.LinkCredit, p.HasLinkCredit = l.credit, true
		p.Drain = l.drain
	}
	s.conn.append(s.channel, func(b []byte) ([]byte, error) { return p.append(b), nil })
}

// flushPending writes transfer frames that waited for the session window; conn.mu is held.
func (s *session) flushPending() {
	n := 0
	for n < len(s.pending) && s.remoteWindow > 0 {
		s.writeTransfer(s.pending[n].frame)
		n++
	}
	s.pending = s.pending[n:]
	if len(s.pending) == 0 {
		s.pending = nil
	}
}

func (s *session) writeTransfer(frame []byte) {
	c := s.conn
	if c.closing {
		return
	}
	c.out = append(c.out, frame...)
	s.nextOutgoingID++
	s.remoteWindow--
	c.signal()
}

// disposition handles the client's word on deliveries we sent it.
func (s *session) disposition(f *fields) error {
	var p Disposition
	if err := p.decode(f); err != nil {
		return err
	}
	if !p.Receiver {
		return nil // our incoming deliveries are settled the moment we answer them
	}
	type settlement struct {
		link *Link
		id   uint32
		tag  UUID
	}
	var buf [8]settlement
	found := buf[:0]
	c := s.conn
	c.mu.Lock()
	// Serial-number arithmetic [AMQP-2.8.10]; no id beyond what we sent can match.
	for id, n := p.First, 0; n <= int(p.Last-p.First) && n < incomingWindow*2; id, n = id+1, n+1 {
		d, ok := s.unsettled[id]
		if !ok || d.link.state != linkAttached {
			continue
		}
		if p.Settled || p.State.Outcome >= Accepted {
			delete(s.unsettled, id)
		}
		found = append(found, settlement{d.link, id, d.tag})
	}
	c.mu.Unlock()
	if p.State.Outcome == Received || p.State.Outcome == NoState && !p.Settled {
		return nil
	}
	for _, x := range found {
		x.link.handler.Settle(Settlement{DeliveryID: x.id, Tag: x.tag, State: p.State, Settled: p.Settled})
	}
	return nil
}
