package envelope_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// receive returns a message of the producer, as a session receiver returns it.
func receive() *azservicebus.ReceivedMessage {
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "fullDocument", Value: bson.D{{Key: "_id", Value: 1}, {Key: "type", Value: "OrderPaid"}}},
	})
	if err != nil {
		panic(err)
	}
	m, err := envelope.Encode(envelope.Change{
		Stream: "shop.events", Token: "8263A1B2C3", Position: "8263A1B2C3", Epoch: 1,
		Aggregate: "order-1", Version: 2, Operation: envelope.Insert, Type: "OrderPaid", Body: body,
	}, envelope.JSON)
	if err != nil {
		panic(err)
	}
	return received(m)
}

// A consumer in Go that is not a projector reads the producer's messages.
func ExampleDecode() {
	change, err := envelope.Decode(receive())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(change.Operation, change.Type, change.Version, "of", change.Aggregate)
	fmt.Println(change.Document())
	// Output:
	// insert OrderPaid 2 of order-1
	// {"_id": {"$numberInt":"1"},"type": "OrderPaid"}
}

// A message that cannot be read is refused with a reason, which a consumer can use as the
// dead-letter reason.
func ExampleError() {
	_, err := envelope.Decode(&azservicebus.ReceivedMessage{MessageID: "1"})
	if refused, ok := errors.AsType[*envelope.Error](err); ok {
		fmt.Println(refused.Reason)
	}
	// Output: MissingProperty
}

// Each aggregate has a session of its own, or all share a fixed number of sessions.
func ExampleSessionKey() {
	var own envelope.SessionKey
	shared := envelope.Buckets(16)
	fmt.Println(own, own.Session("order-1"))
	fmt.Println(shared, shared.Session("order-1"), shared.Session("order-2"), shared.Session("order-1"))
	// Output:
	// aggregate order-1
	// bucket:16 bucket-12 bucket-3 bucket-12
}

// The text of an aggregate's id does not depend on the numeric type.
func ExampleText() {
	document, err := bson.Marshal(bson.D{
		{Key: "int", Value: int32(17)}, {Key: "long", Value: int64(17)}, {Key: "double", Value: 17.0}, {Key: "string", Value: "order-17"},
	})
	if err != nil {
		panic(err)
	}
	var texts []string
	for _, field := range []string{"int", "long", "double", "string"} {
		text, _ := envelope.Text(bson.Raw(document).Lookup(field))
		texts = append(texts, text)
	}
	fmt.Println(strings.Join(texts, " "))
	// Output: 17 17 17 order-17
}
