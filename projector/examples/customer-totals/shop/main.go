// Command shop stands in for the system that Sluice watches and for one that reads: it inserts the
// events of some orders, and prints the customers who paid most. Both databases are on the
// deployment at MONGODB_URI.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	orders := flag.Int("orders", 10, "orders to insert; 0 only prints")
	top := flag.Int64("top", 3, "customers to print")
	flag.Parse()
	if err := run(context.Background(), *orders, *top); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, orders int, top int64) error {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	events := client.Database("shop").Collection("events")
	for n := range orders {
		customer := []string{"ann", "bob", "eve"}[n%3]
		order := bson.NewObjectID().Hex()
		for i, event := range []string{"OrderPlaced", "OrderPaid"} {
			if _, err := events.InsertOne(ctx, bson.D{
				{Key: "aggregateId", Value: order},
				{Key: "version", Value: i + 1},
				{Key: "type", Value: event},
				{Key: "data", Value: bson.D{{Key: "customerId", Value: customer}, {Key: "totalCents", Value: 100 * (n + 1)}}},
			}); err != nil {
				return err
			}
		}
	}
	// The ranking is a query: it reads as many entries of the index as it prints.
	cursor, err := client.Database("readmodel").Collection("customer_totals").Find(ctx, bson.D{},
		options.Find().SetSort(bson.D{{Key: "paidCents", Value: -1}}).SetLimit(top))
	if err != nil {
		return err
	}
	var customers []struct {
		ID        string `bson:"_id"`
		Orders    int64
		PaidCents int64 `bson:"paidCents"`
	}
	if err := cursor.All(ctx, &customers); err != nil {
		return err
	}
	for _, c := range customers {
		fmt.Printf("%s: %d orders, %d cents paid\n", c.ID, c.Orders, c.PaidCents)
	}
	return nil
}
