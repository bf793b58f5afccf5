package servicebus

import (
	"context"

	"github.com/Azure/go-amqp"
)

// Send hands a message over to a link, like [amqp.Sender.SendWithReceipt], but always ends with its
// context. The latter waits for ever if its context ends at the moment when the connection dies: it
// returns its credit to a link that nothing serves any more (go-amqp v1.7.0, Sender.send). So Send
// closes the link if the context ends first; the link cannot be used after that.
func Send(ctx context.Context, link *amqp.Sender, m *amqp.Message) (amqp.SendReceipt, error) {
	stop := context.AfterFunc(ctx, func() {
		_ = link.Close(ctx) // does not wait for the answer: the context has ended
	})
	defer stop()
	return link.SendWithReceipt(ctx, m, nil)
}
