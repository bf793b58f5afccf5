package servicebus

import (
	"fmt"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
)

// Limits of the service's quotas, in bytes.
const (
	// DefaultMaxMessageBytes is the limit of a message or batch in the Standard tier.
	DefaultMaxMessageBytes = 256 << 10
	// maxBatchBytes is the limit of a batch, however large the messages of an entity may be.
	maxBatchBytes = 1 << 20
	// maxPropertyBytes limits one property, and maxHeaderBytes all that is not the body.
	maxPropertyBytes = 32 << 10
	maxHeaderBytes   = 64 << 10
	// maxStateBytes limits the state of a session, by tier.
	maxStateBytes        = 256 << 10
	maxPremiumStateBytes = 1 << 20
)

// errorText is how the service begins to refuse what its own serializer does not take: it asks to
// retry what can never succeed (azure-sdk-for-net issue 15325). What follows is ours.
const errorText = "The service was unable to process the request; please retry the operation. "

// checkProperties refuses properties that are too large, with the service's condition.
func checkProperties(m *amqp.Message) error {
	if m.HeaderSize() <= maxPropertyBytes { // nearly always
		return nil
	}
	properties, err := m.ApplicationProperties()
	if err != nil {
		return err
	}
	p := m.Properties
	for name, v := range map[string]any{
		"To": p.To, "ReplyTo": p.ReplyTo, "Subject": p.Subject, "ContentType": p.ContentType, "CorrelationId": p.CorrelationID,
	} {
		if size(v) > maxPropertyBytes {
			return tooLarge(name, size(v))
		}
	}
	for name, v := range properties {
		if size(v) > maxPropertyBytes {
			return tooLarge(name, size(v))
		}
	}
	if n := m.HeaderSize(); n > maxHeaderBytes {
		return refusal(amqp.CondInternalError, errorText+fmt.Sprintf("The properties take %d bytes together, and may take %d.", n, maxHeaderBytes))
	}
	return nil
}

func tooLarge(name string, n int) error {
	return refusal(amqp.CondInternalError, errorText+fmt.Sprintf("The property '%s' takes %d bytes, and may take %d.", name, n, maxPropertyBytes))
}

// size of a value that can be large.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	}
	return 0
}
