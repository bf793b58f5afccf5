package servicebus

import (
	"errors"
	"fmt"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// propBatchSize states how many bytes a batch may take, whatever the limit of a message is. .NET
// reads it as a long.
const propBatchSize amqp.Symbol = "com.microsoft:max-message-batch-size"

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
	terms := amqp.Terms{MaxMessageSize: limit, RejectTooLarge: true, Credit: senderCredit}
	if !c.server.opts.OmitBatchLimit {
		terms.Properties = map[amqp.Symbol]any{propBatchSize: int64(min(limit, maxBatchBytes))}
	}
	l.Accept(terms)
	return &senderLink{client: c, link: l, inbox: in}, nil
}

// Transfer stores a message or a batch and then answers.
func (s *senderLink) Transfer(d amqp.Delivery, data []byte) {
	server := s.client.server
	if d.Format == formatBatch && len(data) > maxBatchBytes {
		s.link.Detach(notABatch("The batch takes %d bytes, and may take %d.", len(data), maxBatchBytes))
		return
	}
	batch, err := parseTransfer(d.Format, data)
	switch {
	case errors.Is(err, amqp.ErrMalformed):
		s.link.Detach(&amqp.Error{Condition: amqp.CondDecodeError, Description: err.Error()})
		return
	case err == nil && len(batch) == 0:
		s.link.Detach(notABatch("The batch holds no message."))
		return
	}
	if a := server.unstored(s.inbox.Path(), batch); a != nil {
		s.give(a, d.ID)
		return
	}
	server.operations.add(OperationSend)
	f := server.strike(sending, len(batch), server.credits.ofMessages(len(batch), s.inbox))
	switch {
	case f.drop:
		s.client.conn.Close()
		return
	case err != nil:
	case f.busy:
		err = f.refusal()
	default:
		err = s.inbox.Send(batch)
	}
	switch {
	case err != nil:
	case f.loseAck || server.loseAck():
		s.client.conn.Close()
		return
	case f.detach:
		f.detachNow(s.link)
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

// notABatch returns the error with which the link of an empty or too large batch is detached: the
// service reports both as a batch without data.
func notABatch(format string, a ...any) *amqp.Error {
	return &amqp.Error{Condition: amqp.CondNotAllowed, Description: "The link is force detached by the broker due to errors occurred in publisher. " + fmt.Sprintf(format, a...)}
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
