package mongodb

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Identity is what a deployment reports about itself in its answer to hello.
type Identity struct {
	SetName string `bson:"setName"` // of a replica set's member
	Msg     string `bson:"msg"`
}

// Sharded reports whether a mongos answered.
func (i Identity) Sharded() bool { return i.Msg == "isdbgrid" }

// Identify asks a deployment which kind it is. Errors are the driver's.
func Identify(ctx context.Context, client *mongo.Client) (identity Identity, err error) {
	ask := func(command string) error {
		return client.Database("admin").RunCommand(ctx, bson.D{{Key: command, Value: 1}}).Decode(&identity)
	}
	// MongoDB before 4.4.2 does not know hello, and a server after 5 may be configured to refuse
	// isMaster.
	if err = ask("hello"); HasCode(err, CommandNotFound) {
		err = ask("isMaster")
	}
	return identity, err //nolint:wrapcheck // callers explain it
}
