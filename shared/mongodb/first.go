package mongodb

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// TryFirst asks once for the next event of a change stream that has just been opened, and reports
// whether there is one; the stream's Err is the server's answer. That a first batch is empty proves
// nothing: a mongos reads no oplog for it, and the driver's first TryNext makes no request.
func TryFirst(ctx context.Context, stream *mongo.ChangeStream) bool {
	return stream.TryNext(ctx) || (stream.Err() == nil && stream.TryNext(ctx))
}
