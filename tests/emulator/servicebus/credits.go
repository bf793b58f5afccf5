package servicebus

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// What operations cost on the service's Standard tier ("Throttling operations on Azure Service
// Bus"). A message that is sent or received costs one credit, and each evaluation of a filter of a
// topic another one; outcomes cost nothing. That the opening of a receiver or session, and a
// request that returns no messages, cost one is not documented.
const (
	creditsOfMessage        = 1
	creditsOfRequest        = 1
	creditsOfAdministration = 10
)

// credits are what a namespace may spend. Each second since the first operation begins with the
// credits of a second, and what remains of the previous second's is forfeited. The operation that
// exceeds them is let through, however much it costs, and the following seconds pay for it, so that
// a batch of any size passes and none spends more than it is granted on average.
type credits struct {
	perSecond int // 0: unlimited

	mu      sync.Mutex // guards everything below
	began   time.Time  // of the second
	balance int
	spent   int
}

// ofMessages returns what it costs to send n messages to an entity.
func (c *credits) ofMessages(n int, to *broker.Inbox) int {
	if c.perSecond <= 0 {
		return 0 // the filters need not be counted
	}
	return n * (creditsOfMessage + to.Filters())
}

// take spends n credits and reports whether any were there.
func (c *credits) take(n int) bool {
	if c.perSecond <= 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grant(time.Now())
	if n > 0 && c.balance <= 0 {
		return false
	}
	c.balance -= n
	c.spent += n
	return true
}

// owe spends n credits of an operation that is not refused.
func (c *credits) owe(n int) {
	if c.perSecond <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grant(time.Now())
	c.balance -= n
	c.spent += n
}

// affordable returns how many messages may be delivered now, and if none may, how long until the
// namespace gets credits again.
func (c *credits) affordable() (messages int, wait time.Duration) {
	if c.perSecond <= 0 {
		return math.MaxInt, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.grant(now)
	return max(c.balance, 0) / creditsOfMessage, c.began.Add(time.Second).Sub(now)
}

// grant adds the credits of the seconds that have begun.
func (c *credits) grant(now time.Time) {
	if c.began.IsZero() {
		c.began, c.balance = now, c.perSecond
		return
	}
	if seconds := int(now.Sub(c.began) / time.Second); seconds > 0 {
		c.began = c.began.Add(time.Duration(seconds) * time.Second)
		c.balance = min(c.perSecond, c.balance+seconds*c.perSecond)
	}
}

// credits returns what a request to $management costs before it is served.
func (r *request) credits() int {
	switch strings.TrimPrefix(r.Operation, vendor) {
	case "add-rule", "remove-rule", "enumerate-rules":
		return creditsOfAdministration
	case "schedule-message":
		scheduled, _ := r.body()["messages"].([]any)
		return creditsOfMessage * len(scheduled)
	}
	return creditsOfRequest
}

// messages returns how many messages a response brings.
func (x response) messages() int {
	body, _ := x.Value.(map[string]any)
	list, _ := body["messages"].([]any)
	return len(list)
}

// CreditsSpent returns how many credits operations have cost; 0 without [Options.Credits].
func (s *Server) CreditsSpent() int {
	s.credits.mu.Lock()
	defer s.credits.mu.Unlock()
	return s.credits.spent
}
