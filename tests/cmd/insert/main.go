// Command insert inserts documents into the watched collection: one JSON object a line (Extended
// JSON as well), from standard input. MONGODB_URI, MONGODB_DATABASE and MONGODB_COLLECTION name the
// collection. Each document is durable, with write concern majority, before the next one is
// inserted.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	n, err := insert(ctx, os.Stdin)
	stop()
	fmt.Printf("%d inserted\n", n)
	if err != nil {
		fmt.Fprintln(os.Stderr, "insert:", err)
		os.Exit(1)
	}
}

func insert(ctx context.Context, from io.Reader) (n int, err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return 0, errors.New("MONGODB_URI is no connection string of MongoDB")
	}
	defer func() { err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))) }()
	database, collection := os.Getenv("MONGODB_DATABASE"), os.Getenv("MONGODB_COLLECTION")
	if database == "" || collection == "" {
		return 0, errors.New("set MONGODB_DATABASE and MONGODB_COLLECTION, as for the producer")
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var document bson.D
		if err := bson.UnmarshalExtJSON(lines.Bytes(), false, &document); err != nil {
			return n, fmt.Errorf("document %d is no JSON object: %w", n+1, err)
		}
		if _, err := client.Database(database).Collection(collection).InsertOne(ctx, document); err != nil {
			return n, fmt.Errorf("document %d: %w", n+1, err)
		}
		n++
	}
	return n, lines.Err()
}
