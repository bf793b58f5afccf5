package servicebus

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

// Annotations of the service.
const (
	annPartitionKey     = "x-opt-partition-key"
	annScheduledAt      = "x-opt-scheduled-enqueue-time"
	annSequence         = "x-opt-sequence-number"
	annEnqueuedSequence = "x-opt-enqueue-sequence-number"
	annEnqueuedAt       = "x-opt-enqueued-time"
	annLockedUntil      = "x-opt-locked-until"
	annDeadLetterSource = "x-opt-deadletter-source"
	annState            = "x-opt-message-state"
	annLockToken        = "x-opt-lock-token"
	annViaPartitionKey  = "x-opt-via-partition-key"

	propReason      = "DeadLetterReason"
	propDescription = "DeadLetterErrorDescription"
)

// endOfTime is .NET's latest time, which the service gives as the end of the lock of a message
// whose session is locked.
var endOfTime = time.UnixMilli(253402300799999)

// formatBatch means that every data section is an encoded message.
const formatBatch = 0x80013700

// parsePayload reads a message as its sender encoded it.
func parsePayload(b []byte) (*broker.Payload, error) {
	m, err := amqp.ParseMessage(b)
	if err != nil {
		return nil, err
	}
	if err := checkProperties(m); err != nil {
		return nil, err
	}
	p := &broker.Payload{
		SessionID: m.Properties.GroupID, HasSessionID: m.Properties.HasGroupID,
		TimeToLive: m.TTL, Durable: m.Durable, Priority: m.Priority, Body: m.Bare(),
	}
	switch id := m.Properties.MessageID.(type) {
	case nil:
	case string:
		p.MessageID, p.HasMessageID = id, id != ""
	default:
		p.MessageID, p.HasMessageID = fmt.Sprint(id), true
	}
	p.DeliveryAnnotations = m.DeliveryAnnotations
	if !p.HasMessageID { // the service makes one up
		p.MessageID = strings.ReplaceAll(uuid.NewString(), "-", "")
		if p.Body, err = m.WithMessageID(p.MessageID); err != nil {
			return nil, err
		}
	}
	for k, v := range m.Annotations {
		if err := annotate(p, k, v); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func annotate(p *broker.Payload, key string, v any) error {
	var ok bool
	switch key {
	case annPartitionKey:
		if v == nil {
			return nil
		}
		if p.PartitionKey, ok = v.(string); !ok {
			return refusal(amqp.CondInvalidField, fmt.Sprintf("%s is %T, not a string", key, v))
		}
		p.HasPartitionKey = true
	case annScheduledAt:
		if p.ScheduledAt, ok = v.(time.Time); !ok && v != nil {
			return refusal(amqp.CondInvalidField, fmt.Sprintf("%s is %T, not a timestamp", key, v))
		}
	case annViaPartitionKey:
		if v == nil {
			return nil
		}
		return refusal(amqp.CondNotImplemented, "sending via another entity is not supported by this emulator")
	case annSequence, annEnqueuedSequence, annEnqueuedAt, annLockedUntil, annDeadLetterSource, annState:
		// The broker's own: left over when a received message is sent on.
	default:
		if p.Annotations == nil {
			p.Annotations = make(map[string]any)
		}
		p.Annotations[key] = v
	}
	return nil
}

// appendDelivery encodes a message for a receiver. A locked one carries its token as a delivery
// annotation.
func appendDelivery(b []byte, d *broker.Delivery) ([]byte, error) {
	b = amqp.AppendHeader(b, d.Durable, d.Priority, d.TimeToLive, d.DeliveryCount)
	if d.Token != (broker.Token{}) || len(d.DeliveryAnnotations) > 0 {
		a := amqp.BeginDeliveryAnnotations(b)
		for k, v := range d.DeliveryAnnotations {
			if k == annLockToken {
				continue // left over when a received message is sent on
			}
			if err := a.Any(amqp.Symbol(k), v); err != nil {
				return nil, fmt.Errorf("encode delivery annotation %s: %w", k, err)
			}
		}
		if d.Token != (broker.Token{}) {
			a.UUID(annLockToken, amqp.UUID(d.Token))
		}
		b = a.End()
	}
	a := amqp.BeginAnnotations(b)
	for k, v := range d.Annotations {
		if err := a.Any(amqp.Symbol(k), v); err != nil {
			return nil, fmt.Errorf("encode annotation %s: %w", k, err)
		}
	}
	a.Time(annEnqueuedAt, d.EnqueuedAt)
	a.Long(annSequence, d.SequenceNumber)
	if d.EnqueuedSequenceNumber != 0 {
		a.Long(annEnqueuedSequence, d.EnqueuedSequenceNumber)
	}
	if d.State != broker.Active {
		a.Int(annState, int32(d.State))
	}
	switch {
	case d.LockedUntil.IsZero():
	case d.UnderSession:
		a.Time(annLockedUntil, endOfTime)
	default:
		a.Time(annLockedUntil, d.LockedUntil)
	}
	if d.HasPartitionKey {
		a.String(annPartitionKey, d.PartitionKey)
	}
	if !d.ScheduledAt.IsZero() {
		a.Time(annScheduledAt, d.ScheduledAt)
	}
	if d.DeadLetter != nil {
		a.String(annDeadLetterSource, d.DeadLetter.Source)
	}
	b = a.End()
	bare := d.Body
	if d.DeadLetter != nil || len(d.Modified) > 0 {
		set := make(map[string]any, len(d.Modified)+2)
		for k, v := range d.Modified {
			if _, removed := v.(filter.Removed); removed {
				v = amqp.Removed{}
			}
			set[k] = v
		}
		if d.DeadLetter != nil {
			set[propReason], set[propDescription] = d.DeadLetter.Reason, d.DeadLetter.Description
		}
		var err error
		if bare, err = amqp.RewriteBare(bare, set); err != nil {
			return nil, fmt.Errorf("encode properties: %w", err)
		}
	}
	return append(b, bare...), nil
}

// tagOf turns a lock token into a delivery tag, in which .NET's byte order of a GUID applies.
func tagOf(t broker.Token) amqp.UUID { return swapGUID(amqp.UUID(t)) }

func tokenOf(tag amqp.UUID) broker.Token { return broker.Token(swapGUID(tag)) }

// swapGUID reverses the first three groups; it is its own inverse.
func swapGUID(u amqp.UUID) amqp.UUID {
	u[0], u[1], u[2], u[3] = u[3], u[2], u[1], u[0]
	u[4], u[5] = u[5], u[4]
	u[6], u[7] = u[7], u[6]
	return u
}
