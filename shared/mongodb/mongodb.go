// Package mongodb sets up and ends clients of MongoDB where the driver's own way does harm.
package mongodb

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Interactive sets up the client of a command: somebody waits for the answer. It gives MongoDB up after five seconds and
// asks twice a second until then.
//
// It has to poll. By default the driver waits for the server to push changes, which may take ten seconds, and it can miss one: an
// operation that finds no server reads the topology and only then subscribes to it, so a change in between does not reach it (mongo-driver v2.9.3, topology.Topology.Subscribe). It would fail although MongoDB had answered.
func Interactive(o *options.ClientOptions) {
	o.SetServerSelectionTimeout(5 * time.Second).SetServerMonitoringMode(options.ServerMonitoringModePoll)
}

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
