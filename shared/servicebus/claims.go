package servicebus

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

const (
	cbs = "$cbs"
	// putTimeout bounds one attempt to send tokens.
	putTimeout = 30 * time.Second
)

// Claim makes sure that the connection may use an entity and its management node. The first call
// takes some five round trips, later ones none: the tokens are renewed in the background, until the
// connection is closed.
func (c *Conn) Claim(ctx context.Context, entity string) error {
	audiences := []string{c.namespace.audience(entity), c.namespace.audience(management(entity))}
	if c.claimed(audiences) {
		return nil
	}
	if err := c.claiming.enter(ctx, "put tokens"); err != nil {
		return err
	}
	defer c.claiming.leave()
	if c.claimed(audiences) {
		return nil
	}
	if err := c.put(ctx, audiences); err != nil {
		return fmt.Errorf("claim the right to use %s: %w", entity, err)
	}
	select {
	case c.renewing <- struct{}{}:
	default:
	}
	return nil
}

func (c *Conn) claimed(audiences []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, audience := range audiences {
		if _, ok := c.claims[audience]; !ok {
			return false
		}
	}
	return true
}

// put sends a token for each audience. The caller has entered the gate.
func (c *Conn) put(ctx context.Context, audiences []string) error {
	link, err := openRequests(ctx, c.amqp, cbs)
	if err != nil {
		return err
	}
	defer link.closeSoon(ctx)
	for _, audience := range audiences {
		got, err := c.namespace.tokens.token(ctx, audience)
		if err != nil {
			return err
		}
		_, err = link.ask(ctx, map[string]any{
			"operation": "put-token", "type": got.kind, "name": audience, "expiration": got.expiry(),
		}, got.value)
		if err != nil {
			return fmt.Errorf("send a token: %w", err)
		}
		c.mu.Lock()
		c.claims[audience] = got.expires
		c.mu.Unlock()
	}
	return nil
}

// renewClaims sends new tokens before the old ones expire, until ctx ends with the connection. If
// it fails until they have expired, Service Bus closes the links, with the reason.
func (c *Conn) renewClaims(ctx context.Context) {
	backoff := retry.Backoff{Initial: time.Second, Max: time.Minute}
	for {
		var due <-chan time.Time // nil: never
		wait, audiences := c.dueClaims(time.Now())
		if len(audiences) > 0 {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.amqp.Done():
			return
		case <-c.renewing: // there are more of them
		case <-due:
			if err := c.renewNow(ctx, audiences); err == nil {
				backoff.Reset()
			} else if backoff.Wait(ctx) != nil {
				return
			}
		}
	}
}

// dueClaims returns the audiences whose tokens are to be renewed, and the time until the first of
// them is due.
func (c *Conn) dueClaims(now time.Time) (wait time.Duration, audiences []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for audience, expires := range c.claims {
		if expires.IsZero() {
			continue
		}
		w := renewal(now, expires)
		if len(audiences) == 0 || w < wait {
			wait = w
		}
		audiences = append(audiences, audience)
	}
	return wait, audiences
}

func (c *Conn) renewNow(ctx context.Context, audiences []string) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	if err := c.claiming.enter(ctx, "put tokens"); err != nil {
		return err
	}
	defer c.claiming.leave()
	return c.put(ctx, audiences)
}
