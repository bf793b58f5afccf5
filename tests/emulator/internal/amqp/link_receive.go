package amqp

import "fmt"

// Receiving from the client.

// creditSteps is in how many steps a link's credit is topped up while all of it is used.
const creditSteps = 10

// transfer handles one transfer frame [AMQP-2.6.12], [AMQP-2.6.14].
func (s *session) transfer(f *fields, payload []byte) error {
	var p Transfer
	if err := p.decode(f); err != nil {
		return err
	}
	c := s.conn
	c.mu.Lock()
	if s.ended {
		c.mu.Unlock()
		return nil
	}
	s.nextIncomingID++
	if s.sinceFlow++; s.sinceFlow > incomingWindow {
		c.mu.Unlock()
		s.fail(&Error{Condition: CondWindowViolation, Description: "more transfers than the session window"})
		return nil
	}
	l := s.links[p.Handle]
	switch {
	case l == nil:
		c.mu.Unlock()
		s.fail(&Error{Condition: CondUnattachedHandle, Description: fmt.Sprintf("transfer on handle %d", p.Handle)})
		return nil
	case l.state == linkDetaching:
		c.mu.Unlock()
		return nil // crossed our detach
	case l.state != linkAttached || !l.PeerSends:
		c.mu.Unlock()
		s.fail(&Error{Condition: CondErrantLink, Description: "transfer on a link that cannot take it"})
		return nil
	}
	fault := l.admitLocked(&p)
	if s.sinceFlow >= incomingWindow/2 {
		s.sendFlow(nil)
	}
	maxSize, rejects := l.maxSize, l.rejectLarger
	c.mu.Unlock()
	if !l.assembles {
		l.size = 0
	}
	l.size += uint64(len(payload))
	if fault == nil && l.size > maxSize && !rejects {
		fault = l.tooLarge(p.DeliveryID, maxSize)
	}
	if fault != nil {
		l.partial, l.assembles = nil, false
		l.Detach(fault)
		return nil
	}
	l.assemble(&p, payload, maxSize)
	return nil
}

func (l *Link) tooLarge(id uint32, maxSize uint64) *Error {
	return &Error{
		Condition:   CondMessageSizeExceeded,
		Description: fmt.Sprintf("The received message (delivery-id:%d, size:%d bytes) exceeds the limit (%d bytes) currently allowed on the link.", id, l.size, maxSize),
	}
}

// admitLocked checks a transfer against the link's credit and the one under assembly.
func (l *Link) admitLocked(p *Transfer) *Error {
	if p.Resume {
		return &Error{Condition: CondNotImplemented, Description: "resuming a delivery is not supported"}
	}
	if l.assembles {
		if p.HasDeliveryID && p.DeliveryID != l.delivery.ID {
			return &Error{Condition: CondInvalidField, Description: "continuation with another delivery-id"}
		}
		return nil
	}
	if !p.HasDeliveryID || p.Tag == nil {
		return &Error{Condition: CondInvalidField, Description: "first transfer without delivery-id or delivery-tag"}
	}
	if l.credit == 0 {
		return &Error{Condition: CondTransferLimit, Description: "transfer without credit"}
	}
	// [AMQP-2.6.7] One message costs one credit. Topped up in small steps, as the service does.
	l.credit--
	l.deliveryCount++
	if l.credit <= l.creditLimit-l.creditLimit/creditSteps-1 {
		l.credit = l.creditLimit
		l.sess.sendFlow(l)
	}
	return nil
}

// assemble adds payload to the message and hands it over when complete. Nothing is kept of one that
// is too large: it is read to its end and then rejected.
func (l *Link) assemble(p *Transfer, payload []byte, maxSize uint64) {
	if !l.assembles {
		l.delivery = Delivery{ID: p.DeliveryID, Format: p.MessageFormat}
		l.assembles = true
	}
	l.delivery.Settled = l.delivery.Settled || p.Settled
	if p.Aborted { // implicitly settled [AMQP-2.7.5]
		l.partial, l.assembles = nil, false
		return
	}
	if l.size > maxSize {
		l.partial = nil
	} else {
		l.partial = append(l.partial, payload...)
	}
	if p.More {
		return
	}
	if l.size > maxSize {
		l.assembles = false
		if why := l.tooLarge(l.delivery.ID, maxSize); l.delivery.Settled {
			l.Detach(why)
		} else {
			l.Dispose(l.delivery.ID, State{Outcome: Rejected, Err: why})
		}
		return
	}
	data := l.partial
	l.partial, l.assembles = nil, false
	l.handler.Transfer(l.delivery, data)
}

// Dispose settles an incoming delivery with state.
func (l *Link) Dispose(deliveryID uint32, state State) {
	c := l.sess.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttached || l.sess.ended {
		return
	}
	state.Err = c.traced(state.Err)
	p := Disposition{Receiver: true, First: deliveryID, Last: deliveryID, Settled: true, State: state}
	c.append(l.sess.channel, p.append)
}
