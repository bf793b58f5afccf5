package servicebus

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// management returns the address of an entity's management node.
func management(entity string) string { return entity + "/$management" }

// Manage sends a request to an entity's management node, for one of the entity's links on this
// connection or for none (""). The links to the node are opened by the first request, or the first
// after they broke, and then kept; several requests may be under way. The service detaches links
// that were not used for a while: a request that they did not answer is sent again, once, so
// carrying it out twice must be harmless. Errors: a [*StatusError] if the node refuses.
func (c *Conn) Manage(ctx context.Context, entity, operation, link string, body map[string]any) (map[string]any, error) {
	properties := map[string]any{"operation": operation}
	if link != "" {
		properties["associated-link-name"] = link
	}
	if deadline, ok := ctx.Deadline(); ok {
		properties["server-timeout"] = uint64(max(time.Until(deadline).Milliseconds(), 1))
	}
	answer, err := c.askNode(ctx, entity, properties, body)
	if errors.Is(err, errDetached) {
		answer, err = c.askNode(ctx, entity, properties, body)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	read, ok := answer.(map[string]any)
	if !ok && answer != nil { // nothing was found
		return nil, fmt.Errorf("%s: the answer's body is a %T, not a map", operation, answer)
	}
	return read, nil
}

// askNode sends a request to an entity's management node, and forgets the links to it if they
// broke. Errors: [errDetached].
func (c *Conn) askNode(ctx context.Context, entity string, properties map[string]any, body any) (any, error) {
	node, err := c.manager(ctx, entity)
	if err != nil {
		return nil, err
	}
	answer, err := node.ask(ctx, properties, body)
	if _, refused := errors.AsType[*StatusError](err); err != nil && !refused && ctx.Err() == nil {
		c.forget(ctx, entity, node)
	}
	return answer, err
}

// manager returns the links to an entity's management node. It opens them if they are closed; other
// callers wait meanwhile.
func (c *Conn) manager(ctx context.Context, entity string) (*requests, error) {
	if err := c.managing.enter(ctx, "open the management link"); err != nil {
		return nil, err
	}
	defer c.managing.leave()
	if node := c.managers[entity]; node != nil {
		if !node.broken.Load() {
			return node, nil
		}
		delete(c.managers, entity)
		node.closeSoon(ctx)
	}
	node, err := openRequests(ctx, c.amqp, management(entity))
	if err != nil {
		return nil, err
	}
	c.managers[entity] = node
	return node, nil
}

// forget drops the links, so that the next request opens new ones.
func (c *Conn) forget(ctx context.Context, entity string, node *requests) {
	if c.managing.enter(ctx, "open the management link") != nil {
		return // the next request fails as well, and tries this again
	}
	defer c.managing.leave()
	if c.managers[entity] == node {
		delete(c.managers, entity)
		node.closeSoon(ctx)
	}
}
