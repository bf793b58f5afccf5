package publish

import (
	"context"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Claims keeps bodies that are too large for a message: [claim.Store].
type Claims interface {
	// Put keeps the body of a change. After an error it is put again.
	Put(ctx context.Context, c envelope.Change) (envelope.Claim, error)
}

const (
	// tooLarge is a body that no batch of Service Bus takes: its message is not even written.
	tooLarge = 1 << 20
	// putTimeout bounds one attempt to keep a body: 16 MB at 0.5 MB/s. It may be longer than the fence: a body that a
	// former leader keeps does no harm, and the message that claims it is not sent past the fence.
	putTimeout = 30 * time.Second
)

// encode makes the message of an item, once.
func (l *lane) encode(ctx context.Context, i *item) error {
	switch {
	case i.message != nil:
		return nil
	case l.publisher.config.Claims != nil && len(i.change.Body) > tooLarge:
		return l.checkIn(ctx, i)
	}
	return l.write(i)
}

func (l *lane) write(i *item) (err error) {
	i.message, err = envelope.Encode(i.change, l.publisher.config.Format)
	return err
}

// checkIn keeps the body of an item elsewhere, for as long as that takes, and makes the message that claims it.
func (l *lane) checkIn(ctx context.Context, i *item) error {
	p := l.publisher
	i.message = nil
	var backoff retry.Backoff
	for {
		attempt, cancel := context.WithTimeout(ctx, putTimeout)
		claim, err := p.config.Claims.Put(attempt, i.change)
		cancel()
		if err == nil {
			p.bodies.Report(nil)
			p.metrics.checkedIn(claim.Size)
			i.change.Body, i.change.Claim = nil, &claim
			return l.write(i)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.metrics.retried()
		p.bodies.Report(err, telemetry.KeyPosition, i.change.Position)
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}
