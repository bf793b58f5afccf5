package servicebus

import (
	"context"

	"github.com/Azure/go-amqp"
)

// Send hands a message over to a link, as [amqp.Sender.SendWithReceipt] does, and ends with its context. That one waits for ever
// where its context ends in the moment in which the connection dies: it gives its credit back to a link that nobody serves any more
// (go-amqp v1.7.0, Sender.send). So the link is closed when the context ends first, and can be used no more.
func Send(ctx context.Context, link *amqp.Sender, m *amqp.Message) (amqp.SendReceipt, error) {
	stop := context.AfterFunc(ctx, func() {
		_ = link.Close(ctx) // does not wait for the answer: the context has ended
	})
	defer stop()
	return link.SendWithReceipt(ctx, m, nil)
}
