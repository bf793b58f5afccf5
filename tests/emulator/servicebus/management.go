package servicebus

import (
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/atomapi"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

const vendor = "com.microsoft:"

// manager answers the management requests of one entity. inbox is nil for what cannot be sent
// to, entity for what cannot be received from.
type manager struct {
	address string
	inbox   *broker.Inbox
	entity  *broker.Entity
	rules   *atomapi.API

	maxState int // bytes of a session's state
}

func (c *client) management(address string) (operation, error) {
	m := &manager{address: address, rules: c.server.api, maxState: maxStateBytes}
	if c.server.opts.Premium {
		m.maxState = maxPremiumStateBytes
	}
	var inErr, outErr error
	m.inbox, inErr = c.server.broker.Inbox(address)
	m.entity, outErr = c.server.broker.Entity(address)
	if inErr != nil && outErr != nil {
		return nil, outErr
	}
	return m.serve, nil
}

func (m *manager) serve(r *request) response {
	if why := r.fault(); why != "" {
		return badRequest(why)
	}
	if m.entity != nil {
		switch r.Operation {
		case vendor + "renew-lock":
			return m.renewLock(r)
		case vendor + "renew-session-lock":
			return m.renewSessionLock(r)
		case vendor + "get-session-state":
			return m.getSessionState(r)
		case vendor + "set-session-state":
			return m.setSessionState(r)
		case vendor + "peek-message":
			return m.peek(r)
		case vendor + "receive-by-sequence-number":
			return m.receiveDeferred(r)
		case vendor + "update-disposition":
			return m.updateDisposition(r)
		case vendor + "get-message-sessions":
			return m.listSessions(r)
		case vendor + "add-rule":
			return m.addRule(r)
		case vendor + "remove-rule":
			return m.removeRule(r)
		case vendor + "enumerate-rules":
			return m.listRules(r)
		}
	}
	if m.inbox != nil {
		switch r.Operation {
		case vendor + "schedule-message":
			return m.schedule(r)
		case vendor + "cancel-scheduled-message":
			return m.cancelScheduled(r)
		}
	}
	return response{
		Status: http.StatusNotImplemented, Condition: amqp.CondNotImplemented,
		Description: fmt.Sprintf("operation '%s' on '%s' is not supported by this emulator", r.Operation, m.address),
	}
}

// link returns the name of the link the request is about.
func (r *request) link() string {
	name, _ := r.App["associated-link-name"].(string)
	return name
}

func (m *manager) renewLock(r *request) response {
	tokens, err := lockTokens(r)
	if err != nil {
		return badRequest(err.Error())
	}
	until, err := m.entity.RenewMessages(tokens)
	if err != nil {
		return failed(err)
	}
	return ok(map[string]any{"expirations": until})
}

func lockTokens(r *request) ([]broker.Token, error) {
	list, _ := r.body()["lock-tokens"].(amqp.Array)
	if len(list) == 0 {
		return nil, fmt.Errorf("%s needs lock-tokens", r.Operation)
	}
	out := make([]broker.Token, len(list))
	for i, v := range list {
		u, is := v.(amqp.UUID)
		if !is {
			return nil, fmt.Errorf("lock token %d is %T, not a uuid", i, v)
		}
		out[i] = broker.Token(u)
	}
	return out, nil
}

func sequenceNumbers(r *request) ([]int64, error) {
	list, _ := r.body()["sequence-numbers"].(amqp.Array)
	if len(list) == 0 {
		return nil, fmt.Errorf("%s needs sequence-numbers", r.Operation)
	}
	out := make([]int64, len(list))
	for i, v := range list {
		n, is := v.(int64)
		if !is {
			return nil, fmt.Errorf("sequence number %d is %T, not a long", i, v)
		}
		out[i] = n
	}
	return out, nil
}

func (m *manager) renewSessionLock(r *request) response {
	id, is := r.body()["session-id"].(string)
	if !is {
		return badRequest("renew-session-lock needs session-id")
	}
	until, err := m.entity.RenewSession(id, r.link())
	if err != nil {
		return failed(err)
	}
	return ok(map[string]any{"expiration": until})
}

func (m *manager) getSessionState(r *request) response {
	id, is := r.body()["session-id"].(string)
	if !is {
		return badRequest("get-session-state needs session-id")
	}
	state, err := m.entity.SessionState(id, r.link())
	if err != nil {
		return failed(err)
	}
	if state == nil {
		return ok(map[string]any{"session-state": nil})
	}
	return ok(map[string]any{"session-state": state})
}

func (m *manager) setSessionState(r *request) response {
	id, is := r.body()["session-id"].(string)
	state, isBytes := r.body()["session-state"].([]byte)
	if !is || !isBytes && r.body()["session-state"] != nil {
		return badRequest("set-session-state needs session-id and a binary session-state")
	}
	// The Go SDK encodes "clear the state" as empty binary. append makes nil of that, and a
	// copy of anything else, so that a small state does not keep a whole request alive.
	state = append([]byte(nil), state...)
	if len(state) > m.maxState {
		return badRequest(fmt.Sprintf("The session state takes %d bytes, and may take %d.", len(state), m.maxState))
	}
	if err := m.entity.SetSessionState(id, r.link(), state); err != nil {
		return failed(err)
	}
	return ok(nil)
}

// peek serves the session of the associated link, if that link has one, since the Go SDK does
// not send a session id.
func (m *manager) peek(r *request) response {
	from, is := r.body()["from-sequence-number"].(int64)
	n, isCount := r.body()["message-count"].(int32)
	if !is || !isCount || n <= 0 {
		return badRequest("peek-message needs from-sequence-number and a positive message-count")
	}
	var session *string
	if id, is := r.body()["session-id"].(string); is {
		session = &id
	} else if m.entity.RequiresSession() {
		session = m.entity.HeldSession(r.link())
	}
	return messages(m.entity.Peek(from, int(n), session))
}

// messages encodes deliveries the way peek and receive-by-sequence-number answer.
func messages(ds []broker.Delivery) response {
	if len(ds) == 0 {
		return response{Status: http.StatusNoContent, Description: "No messages"}
	}
	list := make([]any, len(ds))
	for i := range ds {
		b, err := appendDelivery(nil, &ds[i])
		if err != nil {
			return failed(err)
		}
		m := map[string]any{"message": b}
		if t := ds[i].Token; t != (broker.Token{}) { // JavaScript and Python read it here, Go in the message
			m["lock-token"] = amqp.UUID(t)
		}
		list[i] = m
	}
	return ok(map[string]any{"messages": list})
}

func (m *manager) receiveDeferred(r *request) response {
	seqs, err := sequenceNumbers(r)
	if err != nil {
		return badRequest(err.Error())
	}
	mode, _ := r.body()["receiver-settle-mode"].(uint32)
	ds, err := m.entity.TakeDeferred(seqs, r.link(), mode == 0)
	if err != nil {
		return failed(err)
	}
	return messages(ds)
}

func (m *manager) updateDisposition(r *request) response {
	tokens, err := lockTokens(r)
	if err != nil {
		return badRequest(err.Error())
	}
	body := r.body()
	status, _ := body["disposition-status"].(string)
	s := broker.Settlement{Modify: amqp.StringMap(body["properties-to-modify"])}
	switch status {
	case "completed":
		s.Outcome = broker.Complete
	case "abandoned":
		s.Outcome = broker.Abandon
	case "defered": // the service's spelling
		s.Outcome = broker.Defer
	case "suspended":
		s.Outcome = broker.DeadLetterIt
		s.Reason, _ = body["deadletter-reason"].(string)
		s.Description, _ = body["deadletter-description"].(string)
	default:
		return badRequest(fmt.Sprintf("disposition status '%s' is not supported by this emulator", status))
	}
	if err := m.entity.SettleByToken(tokens, s); err != nil {
		return failed(err)
	}
	return ok(nil)
}

func (m *manager) listSessions(r *request) response {
	body := r.body()
	updated, is := body["last-updated-time"].(time.Time)
	skip, isSkip := body["skip"].(int32)
	top, isTop := body["top"].(int32)
	if !is || !isSkip || !isTop {
		return badRequest("get-message-sessions needs last-updated-time, skip and top")
	}
	since := &updated
	if updated.Year() >= 9999 { // the largest time means: those with messages or state
		since = nil
	}
	ids := m.entity.Sessions(since, int(skip), int(top))
	if len(ids) == 0 {
		return response{Status: http.StatusNoContent, Description: "No sessions"}
	}
	return ok(map[string]any{"skip": skip + int32(len(ids)), "sessions-ids": ids})
}

func (m *manager) schedule(r *request) response {
	list, _ := r.body()["messages"].([]any)
	if len(list) == 0 {
		return badRequest("schedule-message needs messages")
	}
	batch := make([]*broker.Payload, len(list))
	for i, v := range list {
		raw, is := amqp.StringMap(v)["message"].([]byte)
		if !is {
			return badRequest("schedule-message needs encoded messages")
		}
		var err error
		if batch[i], err = parsePayload(raw); err != nil {
			return badRequest(err.Error())
		}
	}
	seqs, err := m.inbox.Schedule(batch)
	if err != nil {
		return failed(err)
	}
	return ok(map[string]any{"sequence-numbers": seqs})
}

func (m *manager) cancelScheduled(r *request) response {
	seqs, err := sequenceNumbers(r)
	if err != nil {
		return badRequest(err.Error())
	}
	if err := m.inbox.CancelScheduled(seqs); err != nil {
		return failed(err)
	}
	return ok(nil)
}
