package changes

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// openStream opens the stream, with the stage that splits large events if the deployment supports
// it. The stage costs nothing until an event is too large, and then it is the only way to read it.
// Vendors report an unknown stage with different codes. So after any server error the stream is
// opened once more without the stage. If that succeeds, or fails because the next event is too
// large, and the first error was not transient, the stage is unsupported.
func (c *cursor) openStream(ctx context.Context) (*mongo.ChangeStream, error) {
	open := func(split bool) (stream *mongo.ChangeStream, err error) {
		c.splitting = split
		pipeline := c.reader.config.stages(c.at.Position)
		if split {
			pipeline = append(pipeline, bson.D{{Key: SplitStage, Value: bson.D{}}})
		}
		err = c.request(ctx, func(ctx context.Context) (err error) {
			stream, err = c.reader.collection.Watch(ctx, pipeline, c.options())
			return err
		})
		return stream, err
	}
	stream, err := open(c.trySplit)
	if _, server := errors.AsType[mongo.ServerError](err); !server || !c.trySplit {
		return stream, err
	}
	plain, plainErr := open(false)
	if (plainErr == nil || mongodb.HasCode(plainErr, mongodb.BSONObjectTooLarge)) && !mongodb.Passes(err) {
		c.trySplit = false
		c.reader.log.Info("the deployment does not split events larger than 16 MB: one would stop the stream", telemetry.KeyError, err)
	}
	return plain, plainErr
}

func (c *cursor) options() *options.ChangeStreamOptionsBuilder {
	config, wait := c.reader.config, awaitTime
	if c.publishesRows() || c.beginsWithBackfill() {
		wait = backfillAwaitTime
	}
	c.empties = emptyResponses{await: wait}
	o := options.ChangeStream().SetMaxAwaitTime(wait).SetBatchSize(c.batch.requested)
	full, before := config.documents(c.at.Position)
	if full != "" {
		o.SetFullDocument(full)
	}
	if before != "" {
		o.SetFullDocumentBeforeChange(before)
	}
	switch {
	case len(c.at.ResumeToken) > 0 && c.at.AfterInvalidate:
		o.SetStartAfter(c.resumeToken())
	case len(c.at.ResumeToken) > 0:
		o.SetResumeAfter(c.resumeToken())
	default:
		// An empty response: from a response with events, the driver has no token that precedes
		// them.
		o.SetBatchSize(0)
	}
	if len(c.at.ResumeToken) == 0 && !config.StartAt.IsZero() && !c.fromNow {
		o.SetStartAtOperationTime(&bson.Timestamp{T: uint32(config.StartAt.Unix())})
	}
	return o
}

// resumeToken returns the checkpoint's token in a version that the server accepts.
func (c *cursor) resumeToken() bson.Raw {
	if token, ok := OlderToken(c.at.ResumeToken); c.useTokenV1 && ok {
		return token
	}
	return c.at.ResumeToken
}

// resumesOlder reports whether to retry with the same token in version 1, after the server refused
// its version 2. That happens once.
func (c *cursor) resumesOlder(err error) bool {
	if _, ok := OlderToken(c.at.ResumeToken); c.useTokenV1 || !ok || !mongodb.HasCode(err, mongodb.ResumeTokenVersion) {
		return false
	}
	c.useTokenV1 = true
	c.reader.log.Info("the server is older than the one that wrote the resume token; resuming from the same token in the older version",
		telemetry.KeyPosition, c.at.Position)
	return true
}
