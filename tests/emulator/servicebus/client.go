package servicebus

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

const (
	cbsAddress       = "$cbs"
	managementSuffix = "/$management"
)

// client is the state of one connection. Only the connection's reader accesses it, except for
// claims and later.
type client struct {
	server  *Server
	conn    net.Conn
	claims  *claims
	cbs     map[bool]bool // a link to $cbs is open, by whether the client sends on it
	replies []*replyLink
	later   later // answers that are delayed, and what becomes of the idle
	links   linkCount
	forced  func(error) // closes the connection
}

// attach routes a new link by its address and direction.
func (c *client) attach(l *amqp.Link) amqp.LinkHandler {
	if !c.active(l) {
		return c.handler(l)
	}
	c.linkOpened()
	return counted{c.handler(l), c}
}

// active reports whether a link holds its connection open. Links to $cbs and to $management do not.
func (c *client) active(l *amqp.Link) bool {
	address := entityPath(l)
	if _, management := cutSuffixFold(address, managementSuffix); management || address == cbsAddress {
		return false
	}
	_, waits := l.Source.Filter(sessionFilter, codeSessionFilter)
	return l.PeerSends || !waits || !c.server.opts.IdleAccepts
}

func (c *client) handler(l *amqp.Link) amqp.LinkHandler {
	h, err := c.open(l)
	if err != nil {
		l.Refuse(wireError(err))
		return ignored{}
	}
	if address := entityPath(l); address != cbsAddress {
		_, management := cutSuffixFold(address, managementSuffix)
		h = held{h, c.claims.hold(l, address, rightsFor(l, management))}
		if !management {
			h = c.watch(l, h, nil)
		}
	}
	return h
}

func (c *client) open(l *amqp.Link) (amqp.LinkHandler, error) {
	address := entityPath(l)
	if l.PeerSends && l.Target == nil || !l.PeerSends && l.Source == nil {
		return nil, refusal(amqp.CondInvalidField, "attach without a terminus")
	}
	if err := checkLink(l); err != nil {
		return nil, err
	}
	entity, management := cutSuffixFold(address, managementSuffix)
	switch {
	case address == cbsAddress:
		if c.cbs[l.PeerSends] {
			return nil, refusal(amqp.CondNotAllowed, "A link to connection's '$cbs' node is already open.")
		}
		c.cbs[l.PeerSends] = true
		return held{c.openRPC(l, c.putToken, false), func() { c.cbs[l.PeerSends] = false }}, nil
	case !c.claims.allow(address, rightsFor(l, management)): // listing sessions claims an entity's $management alone
		return nil, refusal(amqp.CondUnauthorized, fmt.Sprintf("Unauthorized access. '%s' claim(s) are required to perform this operation. Resource: '%s'.", rightsFor(l, management), entity))
	case management:
		h, err := c.management(entity)
		if err != nil {
			return nil, err
		}
		return c.openRPC(l, h, true), nil
	case l.PeerSends:
		return c.openSender(l, entity)
	default:
		return c.openReceiver(l, entity)
	}
}

// entityPath returns the path of what a link is about. Python names it with a URL of the namespace.
func entityPath(l *amqp.Link) string {
	address := l.Address()
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL || scheme != "amqp" && scheme != "amqps" && scheme != "sb" {
		return address
	}
	_, path, _ := strings.Cut(rest, "/")
	return strings.TrimSuffix(path, "/")
}

func cutSuffixFold(s, suffix string) (string, bool) {
	if len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix) {
		return s[:len(s)-len(suffix)], true
	}
	return s, false
}

func refusal(condition amqp.Symbol, description string) error {
	return &amqp.Error{Condition: condition, Description: description}
}

// wireError gives every error a condition a client can act on.
func wireError(err error) *amqp.Error {
	if e, is := errors.AsType[*amqp.Error](err); is {
		return e
	}
	if e, is := errors.AsType[*broker.Error](err); is {
		return &amqp.Error{Condition: amqp.Symbol(e.Condition), Description: e.Description}
	}
	return &amqp.Error{Condition: amqp.CondInternalError, Description: err.Error()}
}

// ignored is the handler of a link that was refused.
type ignored struct{}

func (ignored) Transfer(amqp.Delivery, []byte) {}
func (ignored) Settle(amqp.Settlement)         {}
func (ignored) Credit()                        {}
func (ignored) Detached()                      {}
