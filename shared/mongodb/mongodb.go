// Package mongodb ends clients of MongoDB.
package mongodb

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Disconnect closes a client that nobody uses any more, within timeout, whether or not ctx has ended. Connections that
// are still waiting for an answer are closed at once.
//
// The driver must not know of a deadline: given one, it waits for such connections in a loop that never sleeps
// (mongo-driver v2.9.3, topology.pool.close), at the cost of a whole processor until the deadline.
func Disconnect(ctx context.Context, client *mongo.Client, timeout time.Duration) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer time.AfterFunc(timeout, cancel).Stop()
	return client.Disconnect(ctx)
}
