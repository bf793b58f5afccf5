package publish

import (
	"context"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Claims stores bodies that are too large for a message: [claim.Store].
type Claims interface {
	// Put stores the body of a change. After an error it is retried.
	Put(ctx context.Context, c envelope.Change) (envelope.Claim, error)
}

const (
	// maxBatchedBody is the size of a body above which no batch takes it, so that its message is not even encoded.
	maxBatchedBody = broker.MaxBatchBytes
	// storeTimeout bounds one attempt to store a body: 16 MB at 0.5 MB/s. It may be longer than the fence: a body stored by a former
	// leader does no harm, and the message that claims it is not sent past the fence.
	storeTimeout = 30 * time.Second
)

// encode makes the message of an item, once.
func (l *lane) encode(ctx context.Context, i *item) error {
	switch {
	case i.message != nil:
		return nil
	case l.publisher.config.Claims != nil && len(i.change.Body) > maxBatchedBody:
		return l.storeBody(ctx, i)
	}
	return l.encodeMessage(i)
}

// maxJSONShrink is by how much canonical Extended JSON may be smaller than the BSON that it is made of, at most: an array of empty strings
// takes three bytes an element, and up to 14 in BSON, which writes the index of each.
const maxJSONShrink = 5

// exceedsEntityLimit reports whether an item's message is too large for the entity whatever is done, by the size of its body. What is that large
// is not encoded: a change of 45 MB takes ten times as much as text.
func (l *lane) exceedsEntityLimit(i *item, largest uint64) bool {
	if i.message != nil || l.publisher.config.Claims != nil || largest == 0 {
		return false
	}
	size := uint64(len(i.change.Body))
	if l.publisher.config.Format == envelope.JSON {
		size /= maxJSONShrink
	}
	return size > largest
}

func (l *lane) encodeMessage(i *item) (err error) {
	i.message, err = envelope.Encode(i.change, l.publisher.config.Format)
	return err
}

// storeBody stores the body of an item in Blob storage, retrying for as long as that takes, and encodes the message that claims it.
func (l *lane) storeBody(ctx context.Context, i *item) error {
	p := l.publisher
	i.message = nil
	var backoff retry.Backoff
	for {
		attempt, cancel := context.WithTimeout(ctx, storeTimeout)
		claim, err := p.config.Claims.Put(attempt, i.change)
		cancel()
		if err == nil {
			p.claimOutage.Report(nil)
			p.metrics.claimChecked(claim.Size)
			i.change.Body, i.change.Claim = nil, &claim
			return l.encodeMessage(i)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.metrics.retried()
		p.claimOutage.Report(err, telemetry.KeyPosition, i.change.Position)
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}
