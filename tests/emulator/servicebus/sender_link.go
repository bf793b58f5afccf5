package servicebus

import (
	"errors"
	"fmt"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
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
		MaxMessageSize: limit, RejectTooLarge: true, Credit: senderCredit,
		Properties: map[amqp.Symbol]any{"com.microsoft:max-message-batch-size": min(limit, maxBatchBytes)},
	})
	return &senderLink{client: c, link: l, inbox: in}, nil
}

// Transfer stores a message or a batch and then answers.
func (s *senderLink) Transfer(d amqp.Delivery, data []byte) {
	server := s.client.server
	if d.Format == formatBatch && len(data) > maxBatchBytes {
		s.link.Detach(&amqp.Error{Condition: amqp.CondMessageSizeExceeded, Description: fmt.Sprintf("A batch of %d bytes exceeds the limit (%d bytes) of batches.", len(data), maxBatchBytes)})
		return
	}
	batch, err := parseTransfer(d.Format, data)
	if errors.Is(err, amqp.ErrMalformed) {
		s.link.Detach(&amqp.Error{Condition: amqp.CondDecodeError, Description: err.Error()})
		return
	}
	if a := server.unstored(s.inbox.Path(), batch); a != nil {
		s.give(a, d.ID)
		return
	}
	server.operations.add(OperationSend)
	f := server.strike(sending, len(batch))
	switch {
	case f.drop:
		s.client.conn.Close()
		return
	case err != nil:
	case f.busy:
		err = errBusy
	default:
		err = s.inbox.Send(batch)
	}
	switch {
	case err != nil:
	case f.loseAck || server.loseAck():
		s.client.conn.Close()
		return
	case f.detach:
		s.link.Detach(forced())
		return
	}
	if d.Settled {
		return
	}
	state := amqp.State{Outcome: amqp.Accepted}
	if err != nil {
		state = amqp.State{Outcome: amqp.Rejected, Err: wireError(err)}
	}
	s.client.later.after(server.delay(sending), func() { s.link.Dispose(d.ID, state) })
}

// parseTransfer reads the messages that one transfer brings.
func parseTransfer(format uint32, data []byte) ([]*broker.Payload, error) {
	switch format {
	case 0:
		p, err := parsePayload(data)
		if err != nil {
			return nil, err
		}
		return []*broker.Payload{p}, nil
	case formatBatch:
		envelope, err := amqp.ParseMessage(data)
		if err != nil {
			return nil, err
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
		if err == nil && len(batch) == 0 {
			err = refusal(amqp.CondNotAllowed, "a batch must hold at least one message")
		}
		return batch, err
	default:
		return nil, refusal(amqp.CondNotImplemented, "this message format is not supported")
	}
}

// Settle, Credit and Detached have nothing to do where the client sends.
func (s *senderLink) Settle(amqp.Settlement) {}

// Credit implements amqp.LinkHandler.
func (s *senderLink) Credit() {}

// Detached implements amqp.LinkHandler.
func (s *senderLink) Detached() {}
