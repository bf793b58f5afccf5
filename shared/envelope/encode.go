package envelope

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Format is how the body of a message is written.
type Format string

// The formats, by content type.
const (
	// JSON is canonical Extended JSON v2: readable everywhere, and no type is lost.
	JSON Format = "application/json"
	// BSON is the server's bytes as they came: the smallest and the fastest.
	BSON Format = "application/bson"
)

// The application properties. Those with the prefix are CloudEvents 1.0 attributes in the form of its AMQP binding,
// section 3.1.3.1.
const (
	propSpecVersion = "cloudEvents_specversion"
	propID          = "cloudEvents_id"
	propSource      = "cloudEvents_source"
	propType        = "cloudEvents_type"
	propSubject     = "cloudEvents_subject"
	propTime        = "cloudEvents_time"

	propPosition    = "position"
	propEpoch       = "epoch"
	propOperation   = "operation"
	propVersion     = "version"
	propTraceParent = "traceparent"
)

// PropEpoch and PropPosition are the names of the application properties that a watcher of the wire reads.
const (
	PropEpoch    = propEpoch
	PropPosition = propPosition
)

const (
	specVersion = "1.0"
	sourceURI   = "sluice:"
)

// Encode writes a change as a message. The change must carry Stream, Token, Position, Aggregate, Operation, Type and
// Body; an error means that one is missing, or that the body is not valid BSON.
func Encode(c Change, format Format) (*azservicebus.Message, error) {
	switch {
	case c.Stream == "" || c.Token == "" || c.Position == "":
		return nil, fmt.Errorf("encode change: stream %q, token of %d and position of %d characters: none may be empty",
			c.Stream, len(c.Token), len(c.Position))
	case c.Aggregate == "":
		return nil, fmt.Errorf("encode change at %s: no aggregate id", c.Position)
	case !c.Operation.Known():
		return nil, fmt.Errorf("encode change at %s: operation %q has no message form", c.Position, c.Operation)
	}
	body, err := encodeBody(c.Body, format)
	if err != nil {
		return nil, fmt.Errorf("encode change at %s: %w", c.Position, err)
	}
	id, session := MessageID(c.Stream, c.Token), SessionID(c.Aggregate)
	properties := map[string]any{
		propSpecVersion: specVersion,
		propID:          id,
		propSource:      sourceURI + c.Stream,
		propType:        c.Type,
		propSubject:     c.Aggregate,
		propPosition:    c.Position,
		propEpoch:       c.Epoch,
		propOperation:   string(c.Operation),
	}
	if !c.Time.IsZero() {
		properties[propTime] = c.Time.UTC().Format(time.RFC3339Nano)
	}
	if c.Version != 0 {
		properties[propVersion] = c.Version
	}
	if c.TraceParent != "" {
		properties[propTraceParent] = c.TraceParent
	}
	contentType := string(format)
	m := &azservicebus.Message{
		MessageID:             &id,
		SessionID:             &session,
		PartitionKey:          &session,
		Subject:               &c.Type,
		ContentType:           &contentType,
		ApplicationProperties: properties,
		Body:                  body,
	}
	if c.CorrelationID != "" {
		m.CorrelationID = &c.CorrelationID
	}
	return m, nil
}

func encodeBody(body bson.Raw, format Format) ([]byte, error) {
	if err := validate(body); err != nil {
		return nil, fmt.Errorf("validate body: %w", err)
	}
	switch format {
	case BSON:
		return body, nil
	case JSON:
		const canonical, escapeHTML = true, false
		text, err := bson.MarshalExtJSON(body, canonical, escapeHTML)
		if err != nil {
			return nil, fmt.Errorf("write extended JSON: %w", err)
		}
		return text, nil
	}
	return nil, fmt.Errorf("unknown message format %q: use %q or %q", format, JSON, BSON)
}
