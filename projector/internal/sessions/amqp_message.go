package sessions

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// read turns a message into what the SDK would have made of it, as far as the projector reads it.
func read(m *amqp.Message) *azservicebus.ReceivedMessage {
	r := &azservicebus.ReceivedMessage{
		ApplicationProperties: m.ApplicationProperties,
		DeliveryCount:         1,
		LockToken:             lockToken(m.DeliveryTag),
	}
	if len(m.Data) == 1 {
		r.Body = m.Data[0]
	}
	if m.Header != nil {
		r.DeliveryCount = m.Header.DeliveryCount + 1
	}
	if p := m.Properties; p != nil {
		r.MessageID, _ = p.MessageID.(string)
		if id, ok := p.CorrelationID.(string); ok {
			r.CorrelationID = &id
		}
		r.SessionID, r.ContentType = p.GroupID, p.ContentType
	}
	r.SequenceNumber = annotation[int64](m, "x-opt-sequence-number")
	r.EnqueuedSequenceNumber = annotation[int64](m, "x-opt-enqueue-sequence-number")
	r.EnqueuedTime = annotation[time.Time](m, "x-opt-enqueued-time")
	return r
}

// annotation returns an annotation, or nil without one of this type.
func annotation[T any](m *amqp.Message, name string) *T {
	if value, ok := m.Annotations[name].(T); ok {
		return &value
	}
	return nil
}

// lockToken reads a delivery's tag, which is a GUID as .NET writes it, as the SDK does.
func lockToken(tag []byte) (token [16]byte) {
	if len(tag) != len(token) {
		return token
	}
	copy(token[:], tag)
	token[0], token[1], token[2], token[3] = token[3], token[2], token[1], token[0]
	token[4], token[5], token[6], token[7] = token[5], token[4], token[7], token[6]
	return token
}
