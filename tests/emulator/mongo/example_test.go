package mongo_test

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// The driver reaches a server in memory by its dialer, and follows a collection's changes. A test
// calls Start instead, in one line.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	network := netpipe.Listen("mongodb:27017")
	server := mongo.New(mongo.Options{})
	stopped := make(chan error)
	go func() { stopped <- server.Run(ctx, network) }()

	client, err := driver.Connect(options.Client().ApplyURI(server.URI("mongodb:27017")).SetDialer(network))
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := client.Database("shop").Collection("orders")
	changes, err := orders.Watch(ctx, driver.Pipeline{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := orders.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
		fmt.Println(err)
	}
	if changes.Next(ctx) {
		fmt.Println(changes.Current.Lookup("operationType").StringValue(), changes.Current.Lookup("fullDocument"))
	}

	err = client.Disconnect(ctx)
	stop()
	fmt.Println(err, <-stopped)
	// Output:
	// insert {"_id": {"$numberInt":"1"}}
	// <nil> <nil>
}
