package servicebus

import (
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
)

// claims are what one connection has proven, and the links that depend on it. A link is closed when
// every claim that it could depend on has expired.
type claims struct {
	mu     sync.Mutex
	grants map[string]grant // by lower-case entity path
	links  map[*amqp.Link]claimant
	timer  *time.Timer
	closed bool
}

type claimant struct {
	path string
	need Rights
}

func newClaims() *claims {
	return &claims{grants: make(map[string]grant), links: make(map[*amqp.Link]claimant)}
}

func (c *claims) put(path string, g grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grants[path] = g
	c.schedule()
}

// allow reports whether a claim for the entity, or something above it, gives one of the rights.
func (c *claims) allow(path string, need Rights) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until(path, need, time.Now())
}

func (c *claims) until(path string, need Rights, now time.Time) bool {
	path = strings.ToLower(path)
	for {
		if g, found := c.grants[path]; found && g.rights&need != 0 && (g.expires.IsZero() || now.Before(g.expires)) {
			return true
		}
		if path == "" {
			return false
		}
		path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	}
}

// hold ties a link to its claim; the returned function lets go.
func (c *claims) hold(l *amqp.Link, path string, need Rights) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links[l] = claimant{path, need}
	c.schedule()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.links, l)
	}
}

// schedule sets the timer to the first expiry.
func (c *claims) schedule() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if c.closed || len(c.links) == 0 {
		return
	}
	var first time.Time
	for _, g := range c.grants {
		if !g.expires.IsZero() && (first.IsZero() || g.expires.Before(first)) {
			first = g.expires
		}
	}
	if !first.IsZero() {
		c.timer = time.AfterFunc(time.Until(first), c.expire)
	}
}

func (c *claims) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for path, g := range c.grants {
		if !g.expires.IsZero() && !now.Before(g.expires) {
			delete(c.grants, path)
		}
	}
	for l, x := range c.links {
		if !c.until(x.path, x.need, now) {
			delete(c.links, l)
			l.Detach(&amqp.Error{Condition: amqp.CondDetachForced, Description: "The link '" + l.Name + "' is force detached. Code: RenewToken. Details: Unauthorized access. ExpiredToken: The token is expired."})
		}
	}
	c.schedule()
}

// close stops the timer; afterwards nothing runs any more.
func (c *claims) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.schedule()
}

// held is a link's handler that lets go of its claim with the link.
type held struct {
	amqp.LinkHandler
	release func()
}

// Detached implements amqp.LinkHandler.
func (h held) Detached() {
	h.release()
	h.LinkHandler.Detached()
}
