package servicebus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// request is a message to $cbs or to an entity's $management.
type request struct {
	Operation string
	App       map[string]any
	Value     any // the amqp-value body
}

// body returns the body as a map; nil if it is not a map.
func (r *request) body() map[string]any { return amqp.StringMap(r.Value) }

// response answers a request; Status is an HTTP one. Condition is the reason of a refusal: clients
// branch on it before the status.
type response struct {
	Status      int
	Condition   amqp.Symbol
	Description string
	Value       any
}

// claimCredit is how many requests to $cbs a client may have under way. One may be of any size.
const claimCredit = 100

type operation func(*request) response

const condArgument amqp.Symbol = "com.microsoft:argument-error"

// openRPC opens one direction of a request-response pair of a node. manages reports whether faults
// of managing apply to it.
func (c *client) openRPC(l *amqp.Link, serve operation, manages bool) amqp.LinkHandler {
	if l.PeerSends {
		terms := amqp.Terms{MaxMessageSize: c.server.opts.MaxMessageBytes, Credit: senderCredit}
		if !manages {
			terms = amqp.Terms{MaxMessageSize: math.MaxUint64, Credit: claimCredit}
		}
		l.Accept(terms)
		return c.watch(l, &requestLink{client: c, link: l, serve: serve, manages: manages}, func() (never time.Time) { return never })
	}
	r := &replyLink{client: c, link: l, node: strings.ToLower(entityPath(l)), manages: manages}
	c.replies = append(c.replies, r)
	var terms amqp.Terms
	if !manages {
		terms.MaxMessageSize = math.MaxUint64
	}
	l.Accept(terms)
	return c.watch(l, r, r.lastSent)
}

// replyLink returns the link on which a request to a node is answered. The request names it by its
// target address or, as JavaScript does, whose links to $cbs have no address, by its name. Python
// names none; then it is the only one of the node. Nil: it cannot be determined.
func (c *client) replyLink(node, replyTo string) *replyLink {
	var named, ofNode []*replyLink
	for _, r := range c.replies {
		if r.node != node {
			continue
		}
		ofNode = append(ofNode, r)
		switch replyTo {
		case "":
		case r.link.Target.Address():
			return r
		case r.link.Name:
			named = append(named, r)
		}
	}
	switch {
	case len(named) > 0:
		return named[0]
	case replyTo == "" && len(ofNode) == 1:
		return ofNode[0]
	}
	return nil
}

// requestLink takes requests. It answers each in the reader's goroutine, in order.
type requestLink struct {
	ignored
	client  *client
	link    *amqp.Link
	serve   operation
	manages bool
}

// Transfer implements amqp.LinkHandler.
func (r *requestLink) Transfer(d amqp.Delivery, data []byte) {
	m, err := amqp.ParseMessage(data)
	var req request
	if err == nil {
		if req.App, err = m.ApplicationProperties(); err == nil {
			req.Value, _, err = m.Value()
		}
	}
	if err != nil {
		r.link.Detach(&amqp.Error{Condition: amqp.CondDecodeError, Description: err.Error()})
		return
	}
	req.Operation, _ = req.App["operation"].(string)
	reply := r.client.replyLink(strings.ToLower(entityPath(r.link)), m.Properties.ReplyTo)
	if reply == nil {
		r.unanswerable(d, m.Properties.ReplyTo, req.Operation)
		return
	}
	if !d.Settled {
		r.link.Dispose(d.ID, amqp.State{Outcome: amqp.Accepted})
	}
	id := m.Properties.MessageID
	if m.Properties.CorrelationID != nil {
		id = m.Properties.CorrelationID
	}
	r.answer(reply, id, &req)
}

// unanswerable refuses a request that cannot be answered: its sender would wait for ever.
func (r *requestLink) unanswerable(d amqp.Delivery, replyTo, operation string) {
	why := &amqp.Error{
		Condition:   amqp.CondNotAllowed,
		Description: fmt.Sprintf("the request '%s' cannot be answered: no link of this connection receives from '%s' with the target address or name '%s'", operation, r.link.Address(), replyTo),
	}
	r.client.server.log.Error("request cannot be answered", "operation", operation, "node", r.link.Address(), "reply_to", replyTo)
	if d.Settled {
		r.link.Detach(why)
		return
	}
	r.link.Dispose(d.ID, amqp.State{Outcome: amqp.Rejected, Err: why})
}

// answer serves a request and sends the response, unless a fault strikes.
func (r *requestLink) answer(reply *replyLink, id any, req *request) {
	server := r.client.server
	if !r.manages {
		reply.send(id, r.serve(req))
		return
	}
	server.operations.asked(req.Operation)
	f := server.strike(managing, 1, req.credits())
	if f.drop {
		r.client.conn.Close()
		return
	}
	x := failed(f.refusal())
	if !f.busy {
		x = r.serve(req)
		server.credits.owe(creditsOfMessage * max(0, x.messages()-1)) // the request has paid for the first one
	}
	switch {
	case f.busy:
	case f.loseAck:
		r.client.conn.Close()
		return
	case f.detach:
		f.detachNow(reply.link)
		return
	}
	r.client.later.after(server.delay(managing), func() { reply.send(id, x) })
}

// replyLink carries responses of a node back.
type replyLink struct {
	ignored
	client  *client
	link    *amqp.Link
	node    string // in lower case
	manages bool   // the node is $management

	mu    sync.Mutex
	queue [][]byte // waits for credit
	sent  uint32
	last  time.Time // when an answer was sent
}

func (r *replyLink) send(correlationID any, x response) {
	names := [3]string{"status-code", "status-description", "error-condition"}
	if r.manages {
		names = [3]string{"statusCode", "statusDescription", "errorCondition"}
	}
	if x.Status/100 != 2 {
		x.Description += r.client.server.trace()
	}
	app := map[string]any{names[0]: int32(x.Status), names[1]: x.Description}
	if x.Condition != "" {
		app[names[2]] = x.Condition
	}
	b, err := amqp.AppendReply(nil, correlationID, app, x.Value)
	if err != nil {
		r.client.server.log.Error("response could not be encoded", "error", err)
		r.link.Detach(&amqp.Error{Condition: amqp.CondInternalError, Description: err.Error()})
		return
	}
	r.mu.Lock()
	r.queue = append(r.queue, b)
	r.mu.Unlock()
	r.Credit()
}

// Credit implements amqp.LinkHandler.
func (r *replyLink) Credit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	settled := r.link.SenderSettleMode == amqp.SenderSettled
	for len(r.queue) > 0 && r.link.Send(binary.LittleEndian.AppendUint32(nil, r.sent), settled, r.queue[0]) {
		r.queue = r.queue[1:]
		r.sent++
		r.last = time.Now()
	}
}

func (r *replyLink) lastSent() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Settle implements amqp.LinkHandler: every outcome of an answer is accepted.
func (r *replyLink) Settle(x amqp.Settlement) {
	if !x.Settled {
		r.link.ReplySettled(x.DeliveryID, x.State)
	}
}

// Detached implements amqp.LinkHandler.
func (r *replyLink) Detached() {
	r.client.replies = slices.DeleteFunc(r.client.replies, func(x *replyLink) bool { return x == r })
}

func ok(value map[string]any) response {
	r := response{Status: http.StatusOK, Description: "OK"}
	if value != nil {
		r.Value = value
	}
	return r
}

// failed gives a broker's refusal the status the service uses for it.
func failed(err error) response {
	status, condition, description := http.StatusInternalServerError, amqp.CondInternalError, err.Error()
	if e, is := errors.AsType[*broker.Error](err); is {
		condition, description = amqp.Symbol(e.Condition), e.Description
		switch e.Condition {
		case broker.MessageLockLost, broker.SessionLockLost:
			status = http.StatusGone
		case broker.NotFound, broker.MessageNotFound:
			status = http.StatusNotFound
		case broker.ServerBusy:
			status = http.StatusServiceUnavailable
		case broker.Timeout:
			status = http.StatusRequestTimeout
		case broker.AlreadyExists:
			status = http.StatusConflict
		case broker.NotImplemented:
			status = http.StatusNotImplemented
		default:
			status = http.StatusBadRequest
		}
	}
	return response{Status: status, Condition: condition, Description: description}
}

func badRequest(description string) response {
	return response{Status: http.StatusBadRequest, Condition: condArgument, Description: description}
}
