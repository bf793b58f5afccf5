package envelope

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Format is how the body of a message is written.
type Format string

// The formats, by content type.
const (
	// JSON is canonical Extended JSON v2: readable everywhere, and no type is lost. A body that it
	// would not give back byte for byte is written as BSON.
	JSON Format = "application/json"
	// BSON is the server's bytes as they came: the smallest and the fastest.
	BSON Format = "application/bson"
)

// The content types of the rows of a snapshot. They are separate types so that a reader that does
// not know rows refuses them, instead of counting a document as one more event.
const (
	rowJSON  Format = "application/vnd.sluice.row+json"
	rowBSON  Format = "application/vnd.sluice.row+bson"
	rowClaim Format = "application/vnd.sluice.row-claim-check"
)

// rowTypes maps the formats of events to those of rows, and eventTypes back.
var (
	rowTypes   = map[Format]string{JSON: string(rowJSON), BSON: string(rowBSON), claimCheck: string(rowClaim)}
	eventTypes = map[Format]Format{rowJSON: JSON, rowBSON: BSON, rowClaim: claimCheck}
)

// The application properties. Those with the prefix are CloudEvents 1.0 attributes in the form of
// its AMQP binding, section 3.1.3.1.
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
	propDocument    = "document" // of an update with a post-image: post-image
	propSnapshot    = "snapshot" // of a document of a snapshot: initial or repeat
)

// The names of the application properties that a watcher of the wire reads; PropSubject's is the
// aggregate id.
const (
	PropEpoch    = propEpoch
	PropPosition = propPosition
	PropSnapshot = propSnapshot
	PropSource   = propSource
	PropSubject  = propSubject
	PropVersion  = propVersion
)

// maxText bounds, in bytes, each text that an event brings into the properties of its message.
// Service Bus takes 32 KB for one and 64 KB for all of them, and refuses more with an error that
// resembles a transient one.
const maxText = 8 << 10

// maxStream bounds the stream's name likewise: it is in the source, and in the name of a claim
// check.
const maxStream = 1 << 10

const (
	specVersion = "1.0"
	postImage   = "post-image"
	sourceURI   = "sluice:"
)

// maxProperties is how many application properties a message has but those of a claim check: a map
// that grows costs as much as the rest of Encode, and one for more than 14 takes twice the memory.
const maxProperties = 12

// Encode writes a change as a message. The change must carry Stream, Token, Position, Aggregate,
// Operation, Type and either Body or Claim; an error means that one is missing, that the body is
// not valid BSON, or that a text is too long for the properties of a message.
func Encode(c Change, format Format) (*azservicebus.Message, error) {
	switch {
	case c.Stream == "" || c.Token == "" || c.Position == "":
		return nil, fmt.Errorf("encode change: stream %q, token of %d and position of %d characters: none may be empty",
			c.Stream, len(c.Token), len(c.Position))
	case c.Aggregate == "":
		return nil, fmt.Errorf("encode change at %s: no aggregate id", c.Position)
	case !c.Operation.Known():
		return nil, fmt.Errorf("encode change at %s: operation %q has no message form", c.Position, c.Operation)
	case !c.Row.Known(), c.Row != "" && c.Operation != Insert:
		return nil, fmt.Errorf("encode change at %s: an operation %q is no row %q of a snapshot", c.Position, c.Operation, c.Row)
	}
	if err := bounded(c); err != nil {
		return nil, err
	}
	body, err := encodeBody(c, &format)
	if err != nil {
		return nil, fmt.Errorf("encode change at %s: %w", c.Position, err)
	}
	id, session := MessageID(c.Stream, c.Token), c.SessionID()
	sent := InGeneration(id, c.Generation)
	properties := make(map[string]any, maxProperties)
	properties[propSpecVersion] = specVersion
	properties[propID] = id
	properties[propSource] = sourceURI + c.Stream
	properties[propType] = c.Type
	properties[propSubject] = c.Aggregate
	properties[propPosition] = c.Position
	properties[propEpoch] = c.Epoch
	properties[propOperation] = string(c.Operation)
	if !c.Time.IsZero() {
		properties[propTime] = c.Time.UTC().Format(time.RFC3339Nano)
	}
	if c.Version != 0 {
		properties[propVersion] = c.Version
	}
	if c.TraceParent != "" {
		properties[propTraceParent] = c.TraceParent
	}
	if c.PostImage {
		properties[propDocument] = postImage
	}
	if c.Claim != nil {
		properties[propClaimBlob], properties[propClaimSize], properties[propClaimSHA256] = c.Claim.Blob, c.Claim.Size, c.Claim.SHA256
	}
	contentType := string(format)
	if c.Row != "" {
		properties[propSnapshot] = string(c.Row)
		contentType = rowTypes[format]
	}
	m := &azservicebus.Message{
		MessageID:             &sent,
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

// bounded names the text of a change that is too long for its message.
func bounded(c Change) error {
	for _, text := range []struct {
		name, value string
		most        int
		advice      string
	}{
		{"aggregate id", c.Aggregate, maxText, "does its path lead to the right field?"},
		{"event type", c.Type, maxText, "does its path lead to the right field?"},
		{"correlation id", c.CorrelationID, maxText, "does its path lead to the right field?"},
		{"traceparent", c.TraceParent, maxText, "does its path lead to the right field?"},
		{"position", c.Position, maxText, "it must be bounded when it is made"},
		{"stream", c.Stream, maxStream, "use a shorter STREAM_NAME"},
	} {
		if len(text.value) > text.most {
			return fmt.Errorf("encode change at %.100s: the %s has %d bytes, and a message holds %d of it: %s",
				c.Position, text.name, len(text.value), text.most, text.advice)
		}
	}
	if session := c.SessionID(); utf16Len(session) > maxSessionID {
		return fmt.Errorf("encode change at %.100s: the session id has %d characters, and Service Bus takes %d", c.Position,
			utf16Len(session), maxSessionID)
	}
	return nil
}

// encodeBody writes the body in the format, or in BSON where JSON would change it; a change
// whose body is kept elsewhere has no body, and a format of its own.
func encodeBody(c Change, format *Format) ([]byte, error) {
	if c.Claim != nil {
		*format = claimCheck
		return nil, c.Claim.check(c.Body)
	}
	if err := validate(c.Body); err != nil {
		return nil, fmt.Errorf("validate body: %w", err)
	}
	switch *format {
	case BSON:
		return c.Body, nil
	case JSON:
		if text, ok := AppendJSON(make([]byte, 0, len(c.Body)*3/2+64), c.Body); ok {
			return text, nil
		}
		*format = BSON
		return c.Body, nil
	default: // refused below
	}
	return nil, fmt.Errorf("unknown message format %q: use %q or %q", *format, JSON, BSON)
}
