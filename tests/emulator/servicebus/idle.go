package servicebus

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
)

// How long the service keeps what is not used, according to its troubleshooting page of AMQP
// errors. Links to $cbs and to $management are detached like others, but do not keep their
// connection open.
const (
	linkIdle       = 10 * time.Minute // a link without a send, a receive, a settlement or a request
	connectionIdle = 5 * time.Minute  // a connection whose links are all closed
	connectionNew  = time.Minute      // a connection that opens no link
)

// idleLink is a link's handler that detaches the link when it is not used. A receiver that waits
// for messages with credit counts as used.
type idleLink struct {
	amqp.LinkHandler
	link  *amqp.Link
	later *later
	last  func() time.Time // the last use that the handler does not see, of a link of requests; nil: of an entity

	mu     sync.Mutex
	used   time.Time
	cancel func()
	gone   bool
}

func (c *client) watch(l *amqp.Link, h amqp.LinkHandler, last func() time.Time) *idleLink {
	x := &idleLink{LinkHandler: h, link: l, later: &c.later, last: last, used: time.Now()}
	x.cancel = x.later.start(linkIdle, x.look)
	return x
}

// look detaches the link, or schedules the next check for when it may be idle.
func (x *idleLink) look() {
	waits := x.last == nil && !x.link.PeerSends && x.link.Credit() > 0
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone {
		return
	}
	if waits {
		x.used = time.Now()
	}
	if x.last != nil {
		if last := x.last(); last.After(x.used) {
			x.used = last
		}
	}
	if left := linkIdle - time.Since(x.used); left > 0 {
		x.cancel = x.later.start(left, x.look)
		return
	}
	role := "consumer"
	switch {
	case x.last != nil:
		role = "AmqpControlProtocolClient"
	case x.link.PeerSends:
		role = "publisher"
	}
	x.link.Detach(&amqp.Error{
		Condition:   "amqp:link:detach-forced",
		Description: fmt.Sprintf("The link '%s' is force detached by the broker due to errors occurred in %s. Idle timeout: %s.", x.link.Name, role, linkIdle),
	})
}

func (x *idleLink) use() {
	x.mu.Lock()
	x.used = time.Now()
	x.mu.Unlock()
}

// Transfer implements amqp.LinkHandler.
func (x *idleLink) Transfer(d amqp.Delivery, data []byte) {
	x.use()
	x.LinkHandler.Transfer(d, data)
}

// Settle implements amqp.LinkHandler.
func (x *idleLink) Settle(s amqp.Settlement) {
	x.use()
	x.LinkHandler.Settle(s)
}

// Credit implements amqp.LinkHandler.
func (x *idleLink) Credit() {
	x.use()
	x.LinkHandler.Credit()
}

// Detached implements amqp.LinkHandler.
func (x *idleLink) Detached() {
	x.mu.Lock()
	x.gone = true
	cancel := x.cancel
	x.mu.Unlock()
	cancel()
	x.LinkHandler.Detached()
}

// linkCount closes a connection that has had no link for too long.
type linkCount struct {
	mu     sync.Mutex
	n      int
	cancel func()
}

// watchLinks begins to count; close is called, with the reason, when there was none for too long.
func (c *client) watchLinks(forced func(error)) {
	c.forced = forced
	c.links.cancel = c.closeAfter(connectionNew)
}

func (c *client) closeAfter(d time.Duration) (cancel func()) {
	return c.later.start(d, func() {
		c.forced(&amqp.Error{
			Condition:   amqp.CondConnectionForced,
			Description: fmt.Sprintf("The connection was inactive for more than the allowed %d milliseconds and is closed by the emulator.", d.Milliseconds()),
		})
	})
}

func (c *client) linkOpened() {
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	if c.links.n++; c.links.n == 1 {
		c.links.cancel()
	}
}

func (c *client) linkClosed() {
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	if c.links.n--; c.links.n == 0 {
		c.links.cancel = c.closeAfter(connectionIdle)
	}
}

// counted is a link's handler that is counted.
type counted struct {
	amqp.LinkHandler
	client *client
}

// Detached implements amqp.LinkHandler.
func (x counted) Detached() {
	x.client.linkClosed()
	x.LinkHandler.Detached()
}
