package servicebus_test

import (
	"fmt"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// The entities may come from the official emulator's Config.json. A property that this server
// cannot honour is an error.
func ExampleParseConfig() {
	config, err := servicebus.ParseConfig([]byte(`{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
		{"Name": "orders", "Properties": {"RequiresSession": true, "MaxDeliveryCount": 5}}
	]}]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.Queues[0].Name, config.Queues[0].RequiresSession, config.Queues[0].MaxDeliveryCount)

	_, err = servicebus.ParseConfig([]byte(`{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
		{"Name": "orders", "Properties": {"RequiresSesion": true}}
	]}]}}`))
	fmt.Println(err)
	// Output:
	// orders true 5
	// parse service bus config: json: unknown field "RequiresSesion"
}
