package publish

import (
	"context"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Claims stores bodies that are too large for a message. [claim.Store] implements it.
type Claims interface {
	// Put stores the body of a change. It is retried after an error.
	Put(ctx context.Context, c envelope.Change) (envelope.Claim, error)
}

const (
	// maxBatchedBody is the size above which a body fits into no batch, so that its message is not
	// encoded.
	maxBatchedBody = broker.MaxBatchBytes
	// storeTimeout bounds one attempt to store a body: 16 MB at 0.5 MB/s. It may exceed the fence:
	// a body stored by a former leader is harmless, and the message that refers to it is not sent
	// past the fence.
	storeTimeout = 30 * time.Second
)

// encode encodes the message of an item, once.
func (l *lane) encode(ctx context.Context, i *item) error {
	switch {
	case i.message != nil:
		return nil
	case l.publisher.config.Claims != nil && len(i.change.Body) > maxBatchedBody:
		return l.storeBody(ctx, i)
	}
	return l.encodeMessage(i)
}

// maxJSONShrink is the largest factor by which canonical Extended JSON can be smaller than its
// BSON: an array of empty strings takes three bytes per element in JSON, and up to 14 in BSON,
// which stores the index of each element.
const maxJSONShrink = 5

// exceedsEntityLimit reports, from the size of the body alone, whether an item's message is
// certainly too large for the entity. Such a message is not encoded: a change of 45 MB needs ten
// times as much memory as JSON.
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

// storeBody stores the body of an item in Blob storage, retrying until it succeeds, and encodes the
// message that refers to it.
func (l *lane) storeBody(ctx context.Context, i *item) error {
	p := l.publisher
	i.message = nil
	var claim envelope.Claim
	if err := p.store(ctx, p.claimOutage, func(ctx context.Context) (err error) {
		claim, err = p.config.Claims.Put(ctx, i.change)
		return err
	}, telemetry.KeyPosition, i.change.Position); err != nil {
		return err
	}
	p.metrics.claimChecked(claim.Size)
	i.change.Body, i.change.Claim = nil, &claim
	return l.encodeMessage(i)
}

// store calls put until it succeeds. The error is the cause of ctx.
func (p *Publisher) store(ctx context.Context, storage *outage.Outage, put func(context.Context) error, attributes ...any) error {
	if !storage.Until(ctx, storeTimeout, func(attempt context.Context) error {
		err := put(attempt)
		if err != nil && ctx.Err() == nil {
			p.metrics.retries.Inc()
		}
		return err
	}, attributes...) {
		return context.Cause(ctx)
	}
	return nil
}
