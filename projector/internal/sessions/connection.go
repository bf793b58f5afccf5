package sessions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// connection is one of the pool's ways to the broker, shared by several workers. A client on which something broke is
// replaced by another one for whoever comes next: what the SDK has opened on it meanwhile, several goroutines at once, may be
// links and token refreshes that nobody knows of any more. Sessions that are still good stay on the old client, which is
// closed when the last of them has been given back.
type connection struct {
	dial    func() (*azservicebus.Client, error)
	within  time.Duration // how long closing a client may take
	closing sync.WaitGroup

	mu      sync.Mutex // never held while the network is waited for
	current *client    // guarded by mu; nil: the next user makes one
}

// client is a client and who uses it.
type client struct {
	*azservicebus.Client
	connection *connection
	users      int // guarded by connection.mu
}

// take gives the current client, which must be given back.
func (c *connection) take() (*client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		if err := c.renew(); err != nil {
			return nil, err
		}
	}
	c.current.users++
	return c.current, nil
}

// renew makes the current client. The caller holds mu, or is alone.
func (c *connection) renew() error {
	made, err := c.dial()
	if err != nil {
		return fmt.Errorf("make a Service Bus client: %w", err)
	}
	c.current = &client{Client: made, connection: c}
	return nil
}

// giveBack ends one use of the client. A broken one is used by nobody who comes later.
func (u *client) giveBack(ctx context.Context, broken bool) {
	c := u.connection
	c.mu.Lock()
	defer c.mu.Unlock()
	u.users--
	if broken && c.current == u {
		c.current = nil
	}
	if u.users == 0 && c.current != u {
		c.closing.Go(func() { u.close(ctx, c.within) }) // a dead peer answers no farewell, and no worker should wait for it
	}
}

func (u *client) close(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	_ = u.Close(ctx) // its connection ends in any case
}

// close closes the client, which nobody uses, and waits for those that were replaced.
func (c *connection) close(ctx context.Context) {
	c.mu.Lock()
	last := c.current
	c.current = nil
	c.mu.Unlock()
	if last != nil {
		last.close(ctx, c.within)
	}
	c.closing.Wait()
}

// inDoubt says that an error may mean that the connection is broken: not, when the broker answered.
func inDoubt(err error) bool {
	e, ok := errors.AsType[*azservicebus.Error](err)
	return ok && (e.Code == azservicebus.CodeConnectionLost || e.Code == azservicebus.CodeClosed)
}
