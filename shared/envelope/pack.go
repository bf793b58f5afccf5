package envelope

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A pack is one message with several events of one session, in the batch format of CloudEvents:
// a JSON array in which each element has the attributes and the data of the message that would
// carry the event alone. Readers unpack it into those messages ([Unpack]), so every rule for a
// message holds for each event of a pack.

// packType is the content type of a pack.
const packType = "application/cloudevents-batch+json"

// propPack lists the events of a pack in order, as a JSON array of [stream, aggregate, position].
// A pack whose body cannot be read still names the aggregates that must not be overtaken.
const propPack = "pack"

// maxPackList bounds the list of a pack, in bytes: Service Bus takes 32 KB for one property.
const maxPackList = 24 << 10

// listed is one event in the list of a pack: stream, aggregate, position.
type listed [3]string

// element is one event of a pack. CloudEvents' integers have 32 bits, so epoch and version are
// text.
type element struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            string          `json:"time,omitempty"`
	DataContentType string          `json:"datacontenttype"`
	Position        string          `json:"position"`
	Epoch           string          `json:"epoch"`
	Operation       string          `json:"operation"`
	Version         string          `json:"version,omitempty"`
	Document        string          `json:"document,omitempty"`
	Snapshot        string          `json:"snapshot,omitempty"`
	CorrelationID   string          `json:"correlationid,omitempty"`
	TraceParent     string          `json:"traceparent,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// ErrNotPackable means that an event cannot be part of a pack: its body is in a blob, or only BSON
// can carry it.
var ErrNotPackable = errors.New("the event must have a message of its own")

// Pack is a pack that is being filled. The zero value is empty.
type Pack struct {
	messages []*azservicebus.Message
	body     bytes.Buffer
	list     bytes.Buffer
	ids      []string
}

// Len returns how many events the pack holds.
func (p *Pack) Len() int { return len(p.messages) }

// Add adds an event that [Encode] has written as a message, and reports whether it had room: the
// pack then holds at most most bytes of body. An event for which [ErrNotPackable] is returned, or
// one without room, must follow in another message.
func (p *Pack) Add(m *azservicebus.Message, most int) (added bool, err error) {
	properties := properties(m.ApplicationProperties)
	if m.ContentType == nil || Format(*m.ContentType) != JSON && Format(*m.ContentType) != rowJSON {
		return false, ErrNotPackable
	}
	e := element{
		SpecVersion: specVersion, ID: properties.text(propID), Source: properties.text(propSource), Type: properties.text(propType),
		Subject: properties.text(propSubject), Time: properties.text(propTime), DataContentType: *m.ContentType,
		Position: properties.text(propPosition), Epoch: strconv.FormatInt(properties.number(propEpoch), 10),
		Operation: properties.text(propOperation), Document: properties.text(propDocument), Snapshot: properties.text(propSnapshot),
		TraceParent: properties.text(propTraceParent),
	}
	if version := properties.number(propVersion); version != 0 {
		e.Version = strconv.FormatInt(version, 10)
	}
	if m.CorrelationID != nil {
		e.CorrelationID = *m.CorrelationID
	}
	head, err := marshal(e)
	if err != nil {
		return false, fmt.Errorf("encode event for a pack: %w", err)
	}
	entry, err := marshal(listed{strings.TrimPrefix(e.Source, sourceURI), e.Subject, e.Position})
	if err != nil {
		return false, fmt.Errorf("encode event for a pack: %w", err)
	}
	head = bytes.TrimSuffix(head, []byte("null}")) // the data is appended as it is, byte for byte
	const punctuation = len(",}]")
	if p.Len() > 0 && (p.body.Len()+len(head)+len(m.Body)+punctuation > most || p.list.Len()+len(entry)+punctuation > maxPackList) {
		return false, nil
	}
	separator := byte(',')
	if p.Len() == 0 {
		separator = '['
	}
	p.body.WriteByte(separator)
	p.body.Write(head)
	p.body.Write(m.Body)
	p.body.WriteByte('}')
	p.list.WriteByte(separator)
	p.list.Write(entry)
	p.messages = append(p.messages, m)
	p.ids = append(p.ids, e.ID)
	return true, nil
}

// marshal writes JSON without the escapes that HTML needs.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// Message returns the pack as a message. A pack of one event is the message that was added. The
// MessageID is made from the generation and from all identities: a pack with other events between
// the same first and last one has another id.
func (p *Pack) Message(generation int64) *azservicebus.Message {
	if p.Len() == 1 {
		return p.messages[0]
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%s", generation, strings.Join(p.ids, "\n")))
	id, contentType := hex.EncodeToString(sum[:]), packType
	return &azservicebus.Message{
		MessageID: &id, SessionID: p.messages[0].SessionID, PartitionKey: p.messages[0].PartitionKey, ContentType: &contentType,
		ApplicationProperties: map[string]any{propPack: p.list.String() + "]"},
		Body:                  append(p.body.Bytes(), ']'),
	}
}

// isPack reports whether a message has the content type of a pack.
func isPack(m *azservicebus.ReceivedMessage) bool {
	if m.ContentType == nil || *m.ContentType == string(JSON) || *m.ContentType == string(BSON) {
		return false // almost every message: nothing is to be parsed
	}
	media, _, err := mime.ParseMediaType(*m.ContentType)
	return err == nil && media == packType
}

// packed returns the list of a pack; ok is false if m is not a pack, or its list cannot be read.
func packed(m *azservicebus.ReceivedMessage) (list []listed, ok bool) {
	if !isPack(m) {
		return nil, false
	}
	text := properties(m.ApplicationProperties).text(propPack)
	if json.Unmarshal([]byte(text), &list) != nil || len(list) == 0 {
		return nil, false
	}
	for _, e := range list {
		if e[1] == "" {
			return nil, false
		}
	}
	return list, true
}

// Unpack returns the events of a pack, each as the message that would carry it alone; its MessageID
// is the event's identity. Session, sequence number, delivery count and the reason of a dead letter
// are those of the pack. isPack is false for any other message. If the body of the pack cannot be
// read, or does not hold what the pack lists, the messages name what is listed, and [Decode]
// refuses each of them.
func Unpack(m *azservicebus.ReceivedMessage) (events []*azservicebus.ReceivedMessage, isPack bool) {
	list, isPack := packed(m)
	if !isPack {
		return nil, false
	}
	var elements []element
	readable := json.Unmarshal(m.Body, &elements) == nil && len(elements) == len(list)
	for i := 0; readable && i < len(list); i++ {
		e := &elements[i]
		readable = list[i] == listed{strings.TrimPrefix(e.Source, sourceURI), e.Subject, e.Position} && e.ID != ""
	}
	events = make([]*azservicebus.ReceivedMessage, len(list))
	for i, l := range list {
		if readable {
			events[i] = elements[i].message(m)
		} else {
			events[i] = unreadable(m, l, i)
		}
	}
	return events, true
}

// alone returns a message with what the broker adds to a pack.
func alone(pack *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage {
	return &azservicebus.ReceivedMessage{
		SessionID: pack.SessionID, PartitionKey: pack.PartitionKey, SequenceNumber: pack.SequenceNumber, EnqueuedSequenceNumber: pack.EnqueuedSequenceNumber,
		DeliveryCount: pack.DeliveryCount, EnqueuedTime: pack.EnqueuedTime,
		DeadLetterReason: pack.DeadLetterReason, DeadLetterErrorDescription: pack.DeadLetterErrorDescription,
	}
}

// unreadable returns the message of an event whose pack cannot be read. It holds all of the pack,
// for people.
func unreadable(pack *azservicebus.ReceivedMessage, l listed, index int) *azservicebus.ReceivedMessage {
	m := alone(pack)
	m.MessageID, m.ContentType, m.Body = fmt.Sprintf("%s/%d", pack.MessageID, index), pack.ContentType, pack.Body
	m.ApplicationProperties = map[string]any{propSource: sourceURI + l[0], propSubject: l[1], propPosition: l[2]}
	return m
}

func (e *element) message(pack *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage {
	m := alone(pack)
	m.MessageID, m.ContentType, m.Subject, m.Body = e.ID, &e.DataContentType, &e.Type, e.Data
	p := make(map[string]any, maxProperties)
	for name, text := range map[string]string{
		propSpecVersion: e.SpecVersion, propID: e.ID, propSource: e.Source, propType: e.Type, propSubject: e.Subject, propTime: e.Time,
		propPosition: e.Position, propOperation: e.Operation, propDocument: e.Document, propSnapshot: e.Snapshot, propTraceParent: e.TraceParent,
	} {
		if text != "" {
			p[name] = text
		}
	}
	for name, text := range map[string]string{propEpoch: e.Epoch, propVersion: e.Version} {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			p[name] = n
		} else if text != "" {
			p[name] = text // Decode refuses it
		}
	}
	if e.CorrelationID != "" {
		m.CorrelationID = &e.CorrelationID
	}
	m.ApplicationProperties = p
	return m
}

// Singles returns the events of a pack as the messages that were added to it, from its body. A
// producer sends them if Service Bus refuses the pack.
func Singles(body []byte, session string, generation int64) ([]*azservicebus.Message, error) {
	var elements []element
	if err := json.Unmarshal(body, &elements); err != nil {
		return nil, fmt.Errorf("read the events of a pack: %w", err)
	}
	singles := make([]*azservicebus.Message, len(elements))
	for i := range elements {
		m := elements[i].message(&azservicebus.ReceivedMessage{})
		id := InGeneration(m.MessageID, generation)
		singles[i] = &azservicebus.Message{
			MessageID: &id, SessionID: &session, PartitionKey: &session, Subject: m.Subject, ContentType: m.ContentType,
			CorrelationID: m.CorrelationID, ApplicationProperties: m.ApplicationProperties, Body: m.Body,
		}
	}
	return singles, nil
}
