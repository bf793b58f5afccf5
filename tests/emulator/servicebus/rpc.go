package servicebus

import (
	"errors"
	"net/http"
	"sync"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// request is a message to $cbs or to an entity's $management.
type request struct {
	Operation string
	App       map[string]any
	Value     any // the amqp-value body
}

// body returns the body as a map; nil when it is none.
func (r *request) body() map[string]any { return amqp.StringMap(r.Value) }

// response answers a request; Status is an HTTP one.
type response struct {
	Status      int
	Description string
	Value       any
}

type operation func(*request) response

// openRPC opens one direction of a request-response pair. manages says that faults of managing
// strike it.
func (c *client) openRPC(l *amqp.Link, serve operation, manages bool) amqp.LinkHandler {
	if l.PeerSends {
		l.Accept(amqp.Terms{MaxMessageSize: c.server.opts.MaxMessageBytes, Credit: senderCredit})
		return &requestLink{client: c, link: l, serve: serve, manages: manages}
	}
	r := &replyLink{client: c, link: l, address: l.Target.Address()}
	c.replies[r.address] = r
	l.Accept(amqp.Terms{})
	return r
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
	if !d.Settled {
		r.link.Dispose(d.ID, amqp.State{Outcome: amqp.Accepted})
	}
	req.Operation, _ = req.App["operation"].(string)
	reply := r.client.replies[m.Properties.ReplyTo]
	if reply == nil {
		r.client.server.log.Warn("request without a link to reply on", "operation", req.Operation)
		return
	}
	id := m.Properties.MessageID
	if m.Properties.CorrelationID != nil {
		id = m.Properties.CorrelationID
	}
	r.answer(reply, id, &req)
}

// answer serves a request and sends the response, unless a fault strikes.
func (r *requestLink) answer(reply *replyLink, id any, req *request) {
	server := r.client.server
	if !r.manages {
		reply.send(id, r.serve(req))
		return
	}
	f := server.strike(managing, 1)
	if f.drop {
		r.client.conn.Close()
		return
	}
	x := failed(errBusy)
	if !f.busy {
		x = r.serve(req)
	}
	switch {
	case f.busy:
	case f.loseAck:
		r.client.conn.Close()
		return
	case f.detach:
		reply.link.Detach(forced())
		return
	}
	r.client.later.after(server.delay(managing), func() { reply.send(id, x) })
}

// replyLink carries responses back. Its target address is what requests name as reply-to.
type replyLink struct {
	ignored
	client  *client
	link    *amqp.Link
	address string

	mu    sync.Mutex
	queue [][]byte // waits for credit
}

func (r *replyLink) send(correlationID any, x response) {
	b, err := amqp.AppendReply(nil, correlationID, map[string]any{
		"status-code": int32(x.Status), "status-description": x.Description,
		"statusCode": int32(x.Status), "statusDescription": x.Description,
	}, x.Value)
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
	for len(r.queue) > 0 && r.link.Send(amqp.UUID{}, true, r.queue[0]) {
		r.queue = r.queue[1:]
	}
}

// Detached implements amqp.LinkHandler.
func (r *replyLink) Detached() {
	if r.client.replies[r.address] == r {
		delete(r.client.replies, r.address)
	}
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
	status, description := http.StatusInternalServerError, err.Error()
	if e, is := errors.AsType[*broker.Error](err); is {
		description = e.Description
		switch e.Condition {
		case broker.MessageLockLost, broker.SessionLockLost:
			status = http.StatusGone
		case broker.NotFound, broker.MessageNotFound:
			status = http.StatusNotFound
		case broker.ServerBusy:
			status = http.StatusServiceUnavailable
		case broker.Timeout:
			status = http.StatusRequestTimeout
		case broker.NotImplemented:
			status = http.StatusNotImplemented
		default:
			status = http.StatusBadRequest
		}
	}
	return response{Status: status, Description: description}
}

func badRequest(description string) response {
	return response{Status: http.StatusBadRequest, Description: description}
}
