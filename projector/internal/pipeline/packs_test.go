package pipeline

import (
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// RECEIVE_BATCH counts events: those of a pack are written in parts, as if they had come alone.
func TestAPackIsWrittenInPartsOfReceiveBatchEvents(t *testing.T) {
	body, err := bson.Marshal(bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument", Value: bson.D{{Key: "_id", Value: 1}}}})
	require.NoError(t, err)
	var packed envelope.Pack
	for n := range 8 {
		position := fmt.Sprintf("82%08X", n)
		m, err := envelope.Encode(envelope.Change{
			Stream: "shop.events", Token: position, Position: position, Epoch: 1, Aggregate: fmt.Sprint("a", n), Session: "bucket-1",
			Operation: envelope.Insert, Type: "T", Body: body,
		}, envelope.JSON)
		require.NoError(t, err)
		added, err := packed.Add(m, 60_000)
		require.NoError(t, err)
		require.True(t, added)
	}
	m := packed.Message(0)
	p := Pipeline{opts: Options{Batch: 3, MaxDeliveries: 10}}
	b := p.decode([]*azservicebus.ReceivedMessage{{
		MessageID: *m.MessageID, SessionID: m.SessionID, ContentType: m.ContentType, ApplicationProperties: m.ApplicationProperties,
		Body: m.Body, SequenceNumber: new(int64(7)), DeliveryCount: 1,
	}})
	require.Equal(t, 8, b.len())
	require.Equal(t, 3, b.bounded(0))
	require.Equal(t, 2, b.bounded(2), "after attempts that timed out")
}
