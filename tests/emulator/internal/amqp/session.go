package amqp

import "fmt"

const (
	// incomingWindow is how many transfer frames we let a client send ahead of our flow frames.
	incomingWindow = 5000
	// firstOutgoingID is the id of the first transfer frame that we send in a session.
	firstOutgoingID = 1
	// handleMax is the highest handle of a session that a client may use.
	handleMax = 255
	// linksMax is how many links a connection may have.
	linksMax = 4999
)

// session is one AMQP session. Its fields are guarded by conn.mu, except received, which only
// the reader's goroutine touches.
type session struct {
	conn    *Conn
	channel uint16
	ended   bool             // our end is sent: nothing may be written on the channel any more
	links   map[uint32]*Link // by the client's handle

	peerHandleMax uint32
	handles       map[uint32]struct{} // ours, in use

	// Outgoing transfers [AMQP-2.5.6].
	nextOutgoingID uint32
	remoteWindow   uint32 // transfer frames the client takes
	nextDeliveryID uint32
	pending        []pendingTransfer // waits for remoteWindow
	unsettled      map[uint32]unsettledDelivery

	// Incoming transfers.
	nextIncomingID uint32
	sinceFlow      uint32 // frames received since our last flow
	asked          bool   // our last flow with echo is not answered yet
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
		peerHandleMax: p.HandleMax, handles: make(map[uint32]struct{}),
		nextIncomingID: p.NextOutgoingID, nextOutgoingID: firstOutgoingID, remoteWindow: p.IncomingWindow,
		unsettled: make(map[uint32]unsettledDelivery),
	}
	reply := Begin{
		RemoteChannel: channel, HasRemoteChannel: true, NextOutgoingID: firstOutgoingID,
		IncomingWindow: incomingWindow, OutgoingWindow: p.IncomingWindow, HandleMax: handleMax,
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
	// Before the answer: a client that has closed a link may rely on what the link held being free.
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

// endLocked marks the session ended and returns the links whose handlers must be informed.
func (s *session) endLocked() []*Link {
	s.ended = true
	var gone []*Link
	for _, l := range s.links {
		if l.state != linkGone {
			l.state = linkGone
			gone = append(gone, l)
		}
	}
	s.conn.links -= len(s.links)
	s.links, s.handles = make(map[uint32]*Link), make(map[uint32]struct{})
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
	s.nextIncomingID, s.asked = p.NextOutgoingID, false
	// [AMQP-2.5.6] remote-incoming-window; before the client received our begin it counts from our
	// initial id.
	if !p.HasNextIncomingID {
		p.NextIncomingID = firstOutgoingID
	}
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

// ask writes a flow for the session that the client must answer; conn.mu is held.
func (s *session) ask() {
	if s.asked {
		s.conn.log.Debug("client did not answer a flow with echo", "channel", s.channel)
	}
	s.asked = true
	p := s.state()
	p.Echo = true
	s.conn.append(s.channel, func(b []byte) ([]byte, error) { return p.append(b), nil })
}

// state returns a flow with our side of the session, and starts counting what follows it.
func (s *session) state() Flow {
	s.sinceFlow = 0
	return Flow{
		NextIncomingID: s.nextIncomingID, HasNextIncomingID: true, IncomingWindow: incomingWindow,
		NextOutgoingID: s.nextOutgoingID, OutgoingWindow: incomingWindow,
	}
}

// sendFlow writes a flow for the session and, when l is given, the link; conn.mu is held.
func (s *session) sendFlow(l *Link) {
	p := s.state()
	if l != nil {
		p.Handle, p.HasHandle = l.ours, true
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

// disposition handles the client's outcomes for deliveries that we sent.
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
	// Serial-number arithmetic [AMQP-2.8.10].
	if !s.ended && (int32(p.Last-p.First) < 0 || int32(p.Last-s.nextDeliveryID) >= 0) { //nolint:gosec // as the standard counts
		c.mu.Unlock()
		s.fail(&Error{Condition: CondInvalidField, Description: fmt.Sprintf("disposition of the deliveries %d to %d, of which not all were sent", p.First, p.Last)})
		return nil
	}
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

// EndSession ends the link's AMQP session with an error and leaves its connection open
// [AMQP-2.5.5].
func (l *Link) EndSession(reason *Error) { l.sess.fail(reason) }

// handle returns a handle for a link of the session. Ours begin at 1, so that they differ from
// those of clients, which begin at 0.
func (s *session) handle() uint32 {
	var free uint32
	for h := uint32(1); h <= min(s.peerHandleMax, handleMax); h++ {
		if _, used := s.handles[h]; !used {
			free = h
			break
		}
	}
	s.handles[free] = struct{}{}
	return free
}
