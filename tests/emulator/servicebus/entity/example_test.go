package entity_test

import (
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus/entity"
)

// Validate reports every problem of a namespace, by the limits of Service Bus.
func ExampleConfig_Validate() {
	orders := entity.Queue{Name: "orders", Outbound: entity.Outbound{
		RequiresSession: true, LockDuration: 10 * time.Minute, ForwardTo: "archive",
	}}
	fmt.Println(entity.Config{Queues: []entity.Queue{orders}}.Validate())
	// Output:
	// queue orders: lock duration 10m0s is not within 5m0s
	// queue orders: an entity that requires sessions cannot forward
}
