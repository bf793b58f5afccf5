package broker

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// batchFormat is the AMQP message format in which each data section is a complete message.
const batchFormat uint32 = 0x80013700

// sectionOverhead is the maximum number of bytes that a data section adds to its content.
const sectionOverhead = 8

// amqpBatch is a batch, or one message that is sent without a batch. A batch holds at most 1 MB; a
// single message may have up to 100 MB on Premium.
type amqpBatch struct {
	capacity        uint64
	maxMessageBytes uint64
	size            uint64
	envelope        *amqp.Message // has the properties of the first message, which the broker uses for the whole batch
	messages        [][]byte
	unbatched       *azservicebus.Message
}

// Add implements [Batch].
func (b *amqpBatch) Add(m *azservicebus.Message) error {
	if b.unbatched != nil {
		return ErrFull
	}
	message := toAMQP(m)
	encoded, err := message.MarshalBinary()
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	size := b.size + uint64(len(encoded)) + sectionOverhead
	first := b.envelope == nil
	if first {
		message.Data = nil
		envelope, err := message.MarshalBinary()
		if err != nil {
			return fmt.Errorf("encode the batch's envelope: %w", err)
		}
		size += uint64(len(envelope))
	}
	switch {
	case size <= b.capacity:
	case first:
		return ErrOversized
	default:
		return ErrFull
	}
	if first {
		b.envelope = message
	}
	b.size = size
	b.messages = append(b.messages, encoded)
	return nil
}

// MaxMessageBytes implements [Batch].
func (b *amqpBatch) MaxMessageBytes() uint64 { return b.maxMessageBytes }

// AddUnbatched implements [Batch].
func (b *amqpBatch) AddUnbatched(m *azservicebus.Message) { b.unbatched = m }

// message returns the AMQP message to send. It returns the same message each time.
func (b *amqpBatch) message() (*amqp.Message, error) {
	if b.unbatched != nil {
		return toAMQP(b.unbatched), nil
	}
	if b.envelope == nil {
		var first amqp.Message
		if err := first.UnmarshalBinary(b.messages[0]); err != nil {
			return nil, fmt.Errorf("read the first message of a batch: %w", err)
		}
		first.Data = nil
		b.envelope = &first
	}
	m := *b.envelope
	m.Format, m.Data = batchFormat, b.messages
	return &m, nil
}

// Split implements [Batch].
func (b *amqpBatch) Split(n int) (first, rest Batch, err error) {
	if n < 1 || n >= len(b.messages) {
		return nil, nil, fmt.Errorf("split a batch of %d messages after the first %d: not possible", len(b.messages), n)
	}
	return &amqpBatch{capacity: b.capacity, envelope: b.envelope, messages: b.messages[:n]},
		&amqpBatch{capacity: b.capacity, messages: b.messages[n:]}, nil
}

// Extract implements [Batch]. The envelope of the new batch is decoded from the message when it is
// sent. The new batch must not keep the other messages in memory, so it has a slice of its own.
func (b *amqpBatch) Extract(n int) (one Batch, size int) {
	if b.unbatched != nil {
		return nil, 0
	}
	return &amqpBatch{capacity: b.capacity, messages: [][]byte{b.messages[n]}}, len(b.messages[n])
}

// Content implements [Batch].
func (b *amqpBatch) Content() (contentType string, body []byte, err error) {
	if b.unbatched != nil {
		return *b.unbatched.ContentType, b.unbatched.Body, nil
	}
	if len(b.messages) != 1 {
		return "", nil, fmt.Errorf("read the only message of a batch: it has %d", len(b.messages))
	}
	var m amqp.Message
	if err := m.UnmarshalBinary(b.messages[0]); err != nil {
		return "", nil, fmt.Errorf("read the message of the batch: %w", err)
	}
	if m.Properties != nil && m.Properties.ContentType != nil {
		contentType = *m.Properties.ContentType
	}
	return contentType, m.GetData(), nil
}

// MaxBatchBytes is the size limit of a batch on every entity. Service Bus detaches the link on a
// larger batch even if the entity accepts larger messages.
const MaxBatchBytes = 1 << 20

// batchCapacity returns the size limit of a batch on a link with these properties. Older namespaces
// state only the size limit of a message, which is up to 100 MB on Premium.
func batchCapacity(properties map[string]any, maxMessageSize uint64) uint64 {
	var limit uint64
	switch stated := properties["com.microsoft:max-message-batch-size"].(type) {
	case uint64:
		limit = stated
	case uint32:
		limit = uint64(stated)
	case int64:
		limit = uint64(max(stated, 0))
	case int32:
		limit = uint64(max(stated, 0))
	}
	switch {
	case limit > 0:
		return limit
	case maxMessageSize > 0:
		return min(maxMessageSize, MaxBatchBytes)
	}
	return MaxBatchBytes // the link states no limit
}

// toAMQP converts a message of package envelope the way the SDK does.
func toAMQP(m *azservicebus.Message) *amqp.Message {
	out := &amqp.Message{
		Data: [][]byte{m.Body},
		Properties: &amqp.MessageProperties{
			MessageID: *m.MessageID, GroupID: m.SessionID, ContentType: m.ContentType, Subject: m.Subject,
		},
		Annotations:           amqp.Annotations{"x-opt-partition-key": *m.PartitionKey},
		ApplicationProperties: m.ApplicationProperties,
	}
	if m.CorrelationID != nil {
		out.Properties.CorrelationID = *m.CorrelationID
	}
	return out
}
