package amqp

// Sending towards the client.

// flowLocked applies the client's flow to a link; conn.mu is held.
func (l *Link) flowLocked(p *Flow) {
	if l.state != linkAttached && l.state != linkPending {
		return
	}
	if l.PeerSends {
		if p.HasDeliveryCount {
			l.deliveryCount = p.DeliveryCount
		}
		if p.Echo {
			l.sess.sendFlow(l)
		}
		return
	}
	if p.HasLinkCredit {
		// [AMQP-2.6.7] link-credit(snd) := delivery-count(rcv) + link-credit(rcv) -
		// delivery-count(snd)
		seen := p.DeliveryCount // 0 before the client saw our attach: our initial count
		l.credit = seen + p.LinkCredit - l.deliveryCount
		if int32(l.credit) < 0 {
			l.credit = 0 // we sent more than the lowered credit before we heard of it
		}
	}
	l.drain = p.Drain
	if p.Echo && !p.Drain {
		l.sess.sendFlow(l)
	}
}

// notifyCredit lets the handler use new credit and then, if the client drains, uses up the
// rest [AMQP-2.6.7].
func (l *Link) notifyCredit() {
	l.handler.Credit()
	c := l.sess.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.drain || l.state != linkAttached || l.sess.ended {
		return
	}
	l.deliveryCount += l.credit
	l.credit = 0
	l.sess.sendFlow(l)
	l.drain = false
}

// Credit returns how many messages may be sent now; 0 when the link is not attached.
func (l *Link) Credit() int {
	c := l.sess.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttached || l.sess.ended || c.closing {
		return 0
	}
	return int(l.credit)
}

// Send sends one message, under a tag of at most 16 bytes. It uses one credit. It reports false,
// and sends nothing, when the link is gone or has no credit. An unsettled message is answered
// through LinkHandler.Settle.
func (l *Link) Send(tag []byte, settled bool, payload []byte) bool {
	s, c := l.sess, l.sess.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttached || s.ended || c.closing || l.credit == 0 {
		return false
	}
	l.credit--
	l.deliveryCount++
	id := s.nextDeliveryID
	s.nextDeliveryID++
	if !settled {
		d := unsettledDelivery{link: l}
		copy(d.tag[:], tag)
		s.unsettled[id] = d
	}
	room := int(c.peerMaxFrame) - transferOverhead
	p := Transfer{
		Handle: l.ours, DeliveryID: id, HasDeliveryID: true, Tag: tag,
		HasMessageFormat: true, Settled: settled,
	}
	for first := true; first || len(payload) > 0; first = false {
		part := payload[:min(room, len(payload))]
		payload = payload[len(part):]
		p.More = len(payload) > 0
		if !first { // continuation: id, tag and format are the first frame's
			p.HasDeliveryID, p.HasMessageFormat = false, false
		}
		if s.remoteWindow > 0 { // so nothing is pending: flushPending stops only at 0
			at := len(c.out)
			c.out = endFrame(append(p.append(beginFrame(c.out, frameAMQP, s.channel)), part...), at)
			s.nextOutgoingID++
			s.remoteWindow--
			continue
		}
		s.pending = append(s.pending, pendingTransfer{
			link:  l,
			frame: endFrame(append(p.append(beginFrame(nil, frameAMQP, s.channel)), part...), 0),
		})
	}
	c.signal()
	return true
}

// ReplySettled answers a Settlement: the delivery is settled with state [AMQP-2.6.12]. A rejected
// state with an error informs the client that its outcome did not apply.
func (l *Link) ReplySettled(deliveryID uint32, state State) {
	c := l.sess.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttached || l.sess.ended {
		return // go-amqp ends the session on a disposition for a link it has detached
	}
	state.Err = c.traced(state.Err)
	p := Disposition{First: deliveryID, Last: deliveryID, Settled: true, State: state}
	c.append(l.sess.channel, p.append)
}
