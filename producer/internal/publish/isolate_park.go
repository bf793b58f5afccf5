package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Refusals keeps messages that Service Bus refuses: [claim.Store].
type Refusals interface {
	// Keep stores content as a blob of this name, over one that is there. After an error it is retried.
	Keep(ctx context.Context, name, contentType string, content []byte) error
}

// describe names the event of an item that is in a batch.
func describe(i *item) string {
	return fmt.Sprintf("%s of aggregate %q at %s", i.change.Operation, i.change.Aggregate, i.change.Position)
}

// parkOrHalt ends the stream for a message that is refused for good, or parks it: keeps it in Blob storage, with a record of what it was
// and why, before the watermark moves past it.
func (s *isolator) parkOrHalt(ctx context.Context, t *part, why error) error {
	l, p, i := s.lane, s.lane.publisher, t.items[0]
	s.anyRefused = true
	p.metrics.refused()
	why = fmt.Errorf("send the %s: %w", describe(i), why)
	if p.config.Refusals == nil {
		return &unsendable{i.sequence, fmt.Errorf("%w. Correct what makes it so; or set ON_REFUSED=park, which keeps such a message in "+
			"CLAIM_CHECK_CONTAINER and publishes what comes after it", why)}
	}
	kept, err := encodeRefused(i.change, t.batch, why)
	if err != nil {
		return err
	}
	for _, blob := range kept {
		if err := l.storeRefused(ctx, blob); err != nil {
			return err
		}
	}
	p.metrics.park()
	p.log.Error("Service Bus refuses a message for good: it is parked, and what comes after it is published",
		telemetry.KeyPosition, i.change.Position, telemetry.KeyAggregate, i.change.Aggregate, telemetry.KeyDescription,
		"the record is blob "+kept[1].name, telemetry.KeyError, why)
	p.spans.refused(i, why)
	p.release(t.items, p.watermark.Drop)
	p.progress.Add(1)
	return nil
}

// storeRefused stores one blob, retrying for as long as that takes.
func (l *lane) storeRefused(ctx context.Context, b blob) error {
	p := l.publisher
	var backoff retry.Backoff
	for {
		attempt, cancel := context.WithTimeout(ctx, storeTimeout)
		err := p.config.Refusals.Keep(attempt, b.name, b.contentType, b.content)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.parkOutage.Report(err, telemetry.KeyDescription, b.name)
		if err == nil {
			return nil
		}
		p.metrics.retried()
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

type blob struct {
	name, contentType string
	content           []byte
}

// refusalRecord is the record beside the body of a parked message. Fields are added and never renamed.
type refusalRecord struct {
	Schema      int       `json:"schema"`
	Stream      string    `json:"stream"`
	MessageID   string    `json:"messageId"`
	Session     string    `json:"sessionId"`
	Aggregate   string    `json:"aggregate"`
	Position    string    `json:"position"`
	Operation   string    `json:"operation"`
	Type        string    `json:"type"`
	Version     int64     `json:"version,omitempty"`
	Time        time.Time `json:"time"`
	Epoch       int64     `json:"epoch"`
	Reason      string    `json:"reason"`
	ContentType string    `json:"contentType"`
	Body        string    `json:"body"` // the name of the blob that holds it
	Size        int       `json:"size"` // bytes
	SHA256      string    `json:"sha256"`
	ParkedAt    time.Time `json:"parkedAt"`
}

// encodeRefused is what is kept of a refused message: its body, then the record, so that a record's body is always there.
func encodeRefused(c envelope.Change, b broker.Batch, why error) (kept [2]blob, err error) {
	contentType, body, err := b.Content()
	if err != nil {
		return kept, err
	}
	id := envelope.InGeneration(envelope.MessageID(c.Stream, c.Token), c.Generation)
	name := fmt.Sprintf("refused/%s/%s", c.Stream, id)
	sum := sha256.Sum256(body)
	record, err := json.Marshal(refusalRecord{
		Schema: 1, Stream: c.Stream, MessageID: id, Session: c.SessionID(), Aggregate: c.Aggregate, Position: c.Position,
		Operation: string(c.Operation), Type: c.Type, Version: c.Version, Time: c.Time.UTC(), Epoch: c.Epoch, Reason: why.Error(),
		ContentType: contentType, Body: name + ".body", Size: len(body), SHA256: hex.EncodeToString(sum[:]), ParkedAt: time.Now().UTC(),
	})
	if err != nil {
		return kept, fmt.Errorf("write the record of a refused message: %w", err)
	}
	return [2]blob{{name + ".body", contentType, body}, {name + ".json", "application/json", record}}, nil
}
