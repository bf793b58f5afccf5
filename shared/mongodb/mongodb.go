// Package mongodb configures and closes clients of MongoDB if the driver's own way would do harm.
package mongodb

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Interactive returns what configures the client of a command for which a person waits, and then
// calls adjust, which may be nil. The client polls for a server twice a second and gives up after
// five seconds.
//
// It must poll. By default the driver waits until the server pushes changes, which may take ten
// seconds, and it can miss one: an operation that finds no server reads the topology and only then
// subscribes to it, so that a change in between does not reach it (mongo-driver v2.9.3,
// topology.Topology.Subscribe). The command would fail although MongoDB had answered.
func Interactive(adjust func(*options.ClientOptions)) func(*options.ClientOptions) {
	return func(o *options.ClientOptions) {
		o.SetServerSelectionTimeout(5 * time.Second).SetServerMonitoringMode(options.ServerMonitoringModePoll)
		if adjust != nil {
			adjust(o)
		}
	}
}

// Disconnect closes a client that is no longer used, even if ctx has ended. Connections that still
// wait for an answer are closed at once, except the connection of a monitor that begins to wait at
// this very moment: it ends with the server's next answer, ten seconds later, or when that is
// overdue. So the caller must not do anything after Disconnect that others wait for.
//
// The driver must not see a deadline: with one, it waits for such connections in a loop that never
// sleeps (mongo-driver v2.9.3, topology.pool.close), and takes a whole processor until the
// deadline. Without a deadline, timeout bounds what may take long.
func Disconnect(ctx context.Context, client *mongo.Client, timeout time.Duration) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer time.AfterFunc(timeout, cancel).Stop()
	return client.Disconnect(ctx)
}

// CloseCursor closes a cursor or a change stream, even if ctx has ended, with a short timeout
// because the server may be unreachable.
func CloseCursor(ctx context.Context, cursor interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = cursor.Close(ctx)
}

// Checkpoints is the collection that holds the producers' checkpoints if their store is MongoDB:
// one document for each object, with its name in _id and its bytes in data.
const Checkpoints = "sluice_checkpoints"

// TryFirst asks once for the next event of a change stream that has just been opened, and reports
// whether there is one; the stream's Err is the server's answer. That a first batch is empty proves
// nothing: a mongos reads no oplog for it, and the driver's first TryNext makes no request.
func TryFirst(ctx context.Context, stream *mongo.ChangeStream) bool {
	return stream.TryNext(ctx) || (stream.Err() == nil && stream.TryNext(ctx))
}
