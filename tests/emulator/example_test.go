package emulator_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// A program starts all three servers on free ports, and gives clients the settings. A test calls
// Start instead, in one line.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	servers, err := emulator.New(ctx, emulator.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	stopped := make(chan error)
	go func() { stopped <- servers.Run(ctx) }()

	fmt.Println("messages are received from", servers.Route.Out())
	response, err := http.Get("http://" + servers.Management() + "/health")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(response.Status, response.Body.Close())

	stop()
	fmt.Println(<-stopped)
	// Output:
	// messages are received from changes/Subscriptions/projector
	// 200 OK <nil>
	// <nil>
}

// Ports are chosen by name. A server that is not named listens on a free port.
func ExampleParsePorts() {
	ports, err := emulator.ParsePorts("mongodb=27017,servicebus=5672")
	fmt.Println(ports.Mongo, ports.ServiceBus, ports.Blob, err)
	// Output: 27017 5672 0 <nil>
}
