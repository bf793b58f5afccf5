package witness

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// Events returns a message that the broker accepted, or, of a pack, its events, each as if it had
// been accepted alone. They hold no content.
func Events(a servicebus.Accepted) []servicebus.Accepted {
	encoded := a.Encoded
	a.Encoded = nil
	if _, listed := a.Properties["pack"]; !listed {
		return []servicebus.Accepted{a}
	}
	contents, isPack := unpack(a.MessageID, encoded)
	if !isPack {
		return []servicebus.Accepted{a}
	}
	events := make([]servicebus.Accepted, len(contents))
	for i, c := range contents {
		events[i] = a
		events[i].MessageID, events[i].Properties, events[i].Size = c.MessageID, c.ApplicationProperties, len(c.Body)
	}
	return events
}

// Bodies returns the bodies of the events of a message that the broker accepted, in the order of
// [Events]; nil for one that cannot be read.
func Bodies(a servicebus.Accepted) []bson.Raw {
	var m amqp.Message
	if m.UnmarshalBinary(a.Encoded) != nil || m.Properties == nil {
		return []bson.Raw{nil}
	}
	contents, isPack := unpack(a.MessageID, a.Encoded)
	if !isPack {
		contents = []*azservicebus.ReceivedMessage{{ContentType: m.Properties.ContentType, Body: m.GetData()}}
	}
	bodies := make([]bson.Raw, len(contents))
	for i, c := range contents {
		switch {
		case c.ContentType == nil || !strings.HasSuffix(*c.ContentType, "json"):
			bodies[i] = c.Body
		case bson.UnmarshalExtJSON(c.Body, true, &bodies[i]) != nil:
			bodies[i] = nil
		}
	}
	return bodies
}

// Letters returns a dead letter, or, of a pack, its events, each as if it had been dead-lettered
// alone. They hold no content.
func Letters(m servicebus.Message) []servicebus.Message {
	encoded := m.Encoded
	m.Encoded = nil
	contents, isPack := unpack(m.MessageID, encoded)
	if !isPack {
		return []servicebus.Message{m}
	}
	events := make([]servicebus.Message, len(contents))
	for i, c := range contents {
		events[i] = m
		events[i].MessageID = c.MessageID
	}
	return events
}

func unpack(messageID string, encoded []byte) (events []*azservicebus.ReceivedMessage, isPack bool) {
	var m amqp.Message
	if m.UnmarshalBinary(encoded) != nil || m.Properties == nil || m.Properties.ContentType == nil {
		return nil, false
	}
	return envelope.Unpack(&azservicebus.ReceivedMessage{
		MessageID: messageID, ContentType: m.Properties.ContentType, ApplicationProperties: m.ApplicationProperties, Body: m.GetData(),
	})
}
