package emulator_test

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// A program starts all three servers on free ports. A test calls Start instead, in one line.
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

	client, err := mongo.Connect(options.Client().ApplyURI(servers.Endpoint(emulator.EnvMongo)))
	if err != nil {
		fmt.Println(err)
	}
	orders := client.Database("shop").Collection("orders")
	if _, err := orders.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
		fmt.Println(err)
	}
	n, err := orders.CountDocuments(ctx, bson.D{})
	fmt.Println(n, err)
	fmt.Println("messages are received from", servers.Route.Out())

	err = client.Disconnect(ctx)
	stop()
	fmt.Println(err, <-stopped)
	// Output:
	// 1 <nil>
	// messages are received from changes/Subscriptions/projector
	// <nil> <nil>
}

// Ports are chosen by name. A server that is not named listens on a free port.
func ExampleParsePorts() {
	ports, err := emulator.ParsePorts("mongodb=27017,servicebus=5672")
	fmt.Println(ports.Mongo, ports.ServiceBus, ports.Blob, err)
	// Output: 27017 5672 0 <nil>
}
