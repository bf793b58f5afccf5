package servicebus

import (
	"errors"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/emulator/amqp"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/servicebus/broker"
)

// senderCredit is how many messages or batches a client may have under way on a link.
const senderCredit = 1000

// senderLink takes messages for a queue or topic.
type senderLink struct {
	client *client
	link   *amqp.Link
	inbox  *broker.Inbox
}

var _ amqp.LinkHandler = (*senderLink)(nil)

func (c *client) openSender(l *amqp.Link, entity string) (amqp.LinkHandler, error) {
	in, err := c.server.broker.Inbox(entity)
	if err != nil {
		return nil, err
	}
	limit := c.server.opts.MaxMessageBytes
	if n := in.MaxMessageBytes(); n > 0 {
		limit = n
	}
	l.Accept(amqp.Terms{
		MaxMessageSize: limit, Credit: senderCredit,
		Properties: map[amqp.Symbol]any{"com.microsoft:max-message-batch-size": limit},
	})
	return &senderLink{client: c, link: l, inbox: in}, nil
}

// Transfer stores a message or a batch and then answers.
func (s *senderLink) Transfer(d amqp.Delivery, data []byte) {
	f := s.client.server.drawFault()
	var err error
	if f.busy {
		err = errBusy
	} else {
		err = s.store(d.Format, data)
	}
	if errors.Is(err, amqp.ErrMalformed) {
		s.link.Detach(&amqp.Error{Condition: amqp.CondDecodeError, Description: err.Error()})
		return
	}
	switch {
	case err != nil:
	case f.loseAck || s.client.server.loseAck():
		s.client.conn.Close()
		return
	case f.detach:
		s.link.Detach(forced())
		return
	}
	if f.delay > 0 {
		time.Sleep(f.delay) // the connection waits, so that answers keep their order
	}
	if d.Settled {
		return
	}
	state := amqp.State{Outcome: amqp.Accepted}
	if err != nil {
		state = amqp.State{Outcome: amqp.Rejected, Err: wireError(err)}
	}
	s.link.Dispose(d.ID, state)
}

func (s *senderLink) store(format uint32, data []byte) error {
	switch format {
	case 0:
		p, err := parsePayload(data)
		if err != nil {
			return err
		}
		return s.inbox.Send([]*broker.Payload{p})
	case formatBatch:
		envelope, err := amqp.ParseMessage(data)
		if err != nil {
			return err
		}
		var batch []*broker.Payload
		err = envelope.EachData(func(b []byte) error {
			p, err := parsePayload(b)
			if err != nil {
				return err
			}
			batch = append(batch, p)
			return nil
		})
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return refusal(amqp.CondNotAllowed, "a batch must hold at least one message")
		}
		return s.inbox.Send(batch)
	default:
		return refusal(amqp.CondNotImplemented, "this message format is not supported")
	}
}

// Settle, Credit and Detached have nothing to do where the client sends.
func (s *senderLink) Settle(amqp.Settlement) {}

// Credit implements amqp.LinkHandler.
func (s *senderLink) Credit() {}

// Detached implements amqp.LinkHandler.
func (s *senderLink) Detached() {}
