package witness

import (
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

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
	var m amqp.Message
	if m.UnmarshalBinary(encoded) != nil || m.Properties == nil || m.Properties.ContentType == nil {
		return []servicebus.Accepted{a}
	}
	contents, isPack := envelope.Unpack(&azservicebus.ReceivedMessage{
		MessageID: a.MessageID, ContentType: m.Properties.ContentType, ApplicationProperties: a.Properties, Body: m.GetData(),
	})
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
