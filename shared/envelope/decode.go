package envelope

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Reason is why a message cannot be read, in one word. It becomes the dead-letter reason.
type Reason string

// The reasons. A retry does not help: the message itself is wrong.
const (
	ReasonMissingProperty    Reason = "MissingProperty"
	ReasonInvalidProperty    Reason = "InvalidProperty"
	ReasonUnknownContentType Reason = "UnknownContentType"
	ReasonUndecodableBody    Reason = "UndecodableBody"
	ReasonClaimMissing       Reason = "ClaimCheckMissing" // the blob that holds the body is gone
	ReasonClaimCorrupt       Reason = "ClaimCheckCorrupt" // the blob holds something else
)

// Error is a message that cannot be read: a permanent failure of that message.
type Error struct {
	Reason      Reason
	Description string // for people; never holds the body
	Err         error  // the cause, where there is one
}

func (e *Error) Error() string {
	return fmt.Sprintf("decode message: %s: %s", e.Reason, e.Description)
}

func (e *Error) Unwrap() error { return e.Err }

// Decode reads a change from a message. The error is always an [*Error].
func Decode(m *azservicebus.ReceivedMessage) (Change, error) {
	p := properties(m.ApplicationProperties)
	c := Change{
		MessageID:   m.MessageID,
		Stream:      strings.TrimPrefix(p.text(propSource), sourceURI),
		Position:    p.text(propPosition),
		Aggregate:   p.text(propSubject),
		Operation:   Operation(p.text(propOperation)),
		Type:        p.text(propType),
		Epoch:       p.number(propEpoch),
		Version:     p.number(propVersion),
		PostImage:   p.text(propDocument) == postImage,
		TraceParent: p.text(propTraceParent),
		Row:         Row(p.text(propSnapshot)),
	}
	if m.CorrelationID != nil {
		c.CorrelationID = *m.CorrelationID
	}
	if c.Position != "" && isPack(m) {
		return Change{}, &Error{ReasonUndecodableBody, fmt.Sprintf("the pack of %d bytes does not hold the events that it lists", len(m.Body)), nil}
	}
	if m.MessageID == "" {
		return Change{}, missing("MessageId")
	}
	for _, name := range []string{propSource, propPosition, propSubject, propOperation, propType, propEpoch} {
		if _, ok := p[name]; !ok {
			return Change{}, missing(name)
		}
	}
	if name, ok := p.wrongType(); !ok {
		return Change{}, invalid(name, fmt.Sprintf("has the unexpected type %T", p[name]), nil)
	}
	switch {
	case c.Stream == "":
		return Change{}, invalid(propSource, "is empty", nil)
	case c.Position == "":
		return Change{}, invalid(propPosition, "is empty", nil)
	case c.Aggregate == "":
		return Change{}, invalid(propSubject, "is empty", nil)
	case c.Epoch < 1:
		return Change{}, invalid(propEpoch, "is not a positive number", nil)
	case !c.Operation.Known():
		return Change{}, invalid(propOperation, fmt.Sprintf("is %q, which this version does not know", c.Operation), nil)
	}
	if text := p.text(propTime); text != "" {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return Change{}, invalid(propTime, "is not an RFC 3339 time", err)
		}
		c.Time = t
	}
	if m.ContentType == nil {
		return Change{}, missing("ContentType")
	}
	media, _, err := mime.ParseMediaType(*m.ContentType)
	if err != nil {
		return Change{}, &Error{ReasonUnknownContentType, fmt.Sprintf("content type %q is malformed", *m.ContentType), err}
	}
	format := Format(media)
	if event, row := eventTypes[format]; row != (c.Row != "") || !c.Row.Known() {
		return Change{}, invalid(propSnapshot, fmt.Sprintf("is %q in a message of content type %q", c.Row, media), nil)
	} else if row {
		format = event
	}
	if format == claimCheck {
		c.Claim, err = readClaim(p)
	} else {
		c.Body, err = decodeBody(m, format)
	}
	if err != nil {
		return Change{}, err
	}
	return c, nil
}

func decodeBody(m *azservicebus.ReceivedMessage, format Format) (bson.Raw, error) {
	switch format {
	case BSON:
		if err := validate(m.Body); err != nil {
			return nil, undecodable("BSON", len(m.Body), err)
		}
		return m.Body, nil
	case JSON:
		body, err := readExtJSON(m.Body)
		if err != nil {
			return nil, undecodable("Extended JSON", len(m.Body), err)
		}
		return body, nil
	default: // the types of rows were translated
	}
	return nil, &Error{
		ReasonUnknownContentType,
		fmt.Sprintf("content type %q is neither %q nor %q", *m.ContentType, JSON, BSON), nil,
	}
}

// validate refuses bytes after the document, which the driver's own validation ignores.
func validate(body bson.Raw) error {
	if err := body.Validate(); err != nil {
		return err
	}
	if length := binary.LittleEndian.Uint32(body); int64(length) != int64(len(body)) {
		return fmt.Errorf("%d bytes follow the document", int64(len(body))-int64(length))
	}
	return nil
}

// readExtJSON reads one Extended JSON document, and refuses bytes after it.
func readExtJSON(text []byte) (bson.Raw, error) {
	values, err := bson.NewExtJSONValueReader(bytes.NewReader(text), true)
	if err != nil {
		return nil, err
	}
	var body bson.Raw
	decoder := bson.NewDecoder(values)
	if err := decoder.Decode(&body); err != nil {
		return nil, err
	}
	var more bson.Raw
	if err := decoder.Decode(&more); err == nil {
		return nil, fmt.Errorf("a second document follows the first")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return body, nil
}

type properties map[string]any

func (p properties) text(name string) string {
	s, _ := p[name].(string)
	return s
}

// number reads an integer of any width: the sender's AMQP library chooses it.
func (p properties) number(name string) int64 {
	switch n := p[name].(type) {
	case int64:
		return n
	case int32:
		return int64(n)
	case int:
		return int64(n)
	case uint32:
		return int64(n)
	}
	return 0
}

// wrongType returns the first known property whose value has a wrong type; ok is true if there is
// no such property.
func (p properties) wrongType() (name string, ok bool) {
	for _, name := range []string{propSource, propPosition, propSubject, propOperation, propType, propTime, propTraceParent, propSnapshot} {
		if v, present := p[name]; present {
			if _, isText := v.(string); !isText {
				return name, false
			}
		}
	}
	for _, name := range []string{propEpoch, propVersion} {
		switch p[name].(type) {
		case nil, int64, int32, int, uint32:
		default:
			return name, false
		}
	}
	return "", true
}

func missing(name string) *Error {
	return &Error{ReasonMissingProperty, fmt.Sprintf("the message has no %s", name), nil}
}

func invalid(name, why string, cause error) *Error {
	return &Error{ReasonInvalidProperty, fmt.Sprintf("property %s %s", name, why), cause}
}

func undecodable(format string, size int, cause error) *Error {
	return &Error{ReasonUndecodableBody, fmt.Sprintf("the body of %d bytes is not valid %s", size, format), cause}
}

// UnknownEncoding returns the content type of a message that a newer version of Sluice encoded in a
// form that this version cannot read: it is one of Sluice's own types, or of CloudEvents'. Such a
// message may hold events of any aggregate, so a reader must neither settle it nor apply what
// follows it in its session. A message of any other content type is not Sluice's.
func UnknownEncoding(m *azservicebus.ReceivedMessage) (contentType string, unknown bool) {
	if m.ContentType == nil || *m.ContentType == string(JSON) || *m.ContentType == string(BSON) {
		return "", false // almost every message: nothing is to be parsed
	}
	media, _, err := mime.ParseMediaType(*m.ContentType)
	if err != nil || !strings.HasPrefix(media, "application/vnd.sluice.") && !strings.HasPrefix(media, "application/cloudevents") {
		return "", false
	}
	_, row := eventTypes[Format(media)]
	_, pack := packed(m) // without its list, it does not name the aggregates that it holds events of
	return media, !row && !pack && media != claimCheck
}

// Partial returns what can be read of a message that [Decode] refuses: its id, and the stream, the
// aggregate, the position, the operation, the version and the row, each empty if it cannot be read.
// The aggregate is the subject; without a subject it is the session's id, if the session belongs to
// one aggregate and its id is not a hash.
func Partial(m *azservicebus.ReceivedMessage) Change {
	p := properties(m.ApplicationProperties)
	c := Change{
		MessageID: m.MessageID,
		Stream:    strings.TrimPrefix(p.text(propSource), sourceURI),
		Aggregate: p.text(propSubject),
		Position:  p.text(propPosition),
		Operation: Operation(p.text(propOperation)),
		Version:   p.number(propVersion),
	}
	if row := Row(p.text(propSnapshot)); row.Known() {
		c.Row = row
	}
	if c.Aggregate == "" && m.SessionID != nil && namesAggregate(*m.SessionID) {
		c.Aggregate = *m.SessionID
	}
	return c
}

// namesAggregate reports whether a session's id is an aggregate's id, as far as the id itself
// shows.
func namesAggregate(session string) bool {
	bucket, shared := strings.CutPrefix(session, bucketSession)
	return !strings.HasPrefix(session, hashedSession) && (!shared || strings.Trim(bucket, "0123456789") != "")
}
