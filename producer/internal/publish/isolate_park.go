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
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Refusals stores messages that Service Bus permanently refuses. [claim.Store] implements it.
type Refusals interface {
	// Keep stores content as a blob of this name and replaces an existing blob. It is retried after
	// an error.
	Keep(ctx context.Context, name, contentType string, content []byte) error
}

// describe returns a description of an item's event, for errors.
func describe(i *item) string {
	return fmt.Sprintf("%s of aggregate %q at %s", i.change.Operation, i.change.Aggregate, i.change.Position)
}

// parkOrHalt handles a permanently refused message. It returns an unsendable error that stops the
// stream, or it parks the message: it stores the message in Blob storage, with a record of its
// properties and the reason, before the watermark moves past it.
func (s *isolator) parkOrHalt(ctx context.Context, t *part, why error) error {
	p, i := s.lane.publisher, t.items[0]
	s.anyRefused = true
	p.metrics.refusals.Inc()
	why = fmt.Errorf("send the %s: %w", describe(i), why)
	if p.config.Refusals == nil {
		return &unsendable{i.sequence, fmt.Errorf("%w. Fix its cause; or set ON_REFUSED=park, which stores such a message in "+
			"CLAIM_CHECK_CONTAINER and publishes the changes after it", why)}
	}
	kept, err := encodeRefused(i.change, t.batch, why)
	if err != nil {
		return err
	}
	for _, b := range kept {
		if err := p.store(ctx, p.parkOutage, func(ctx context.Context) error {
			return p.config.Refusals.Keep(ctx, b.name, b.contentType, b.content)
		}, telemetry.KeyDescription, b.name); err != nil {
			return err
		}
	}
	p.metrics.park()
	p.log.Error("Service Bus permanently refuses a message: it is parked, and the changes after it are published",
		telemetry.KeyPosition, i.change.Position, telemetry.KeyAggregate, i.change.Aggregate, telemetry.KeyDescription,
		"the record is blob "+kept[1].name, telemetry.KeyError, why)
	p.spans.refused(i, why)
	p.watermark.Drop(i.sequence)
	p.release(t.items)
	p.progress.Add(1)
	return nil
}

type blob struct {
	name, contentType string
	content           []byte
}

// refusalRecord is the record beside the body of a parked message. Fields are added and never
// renamed.
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
	Body        string    `json:"body"` // the name of the blob with the body
	Size        int       `json:"size"` // bytes
	SHA256      string    `json:"sha256"`
	ParkedAt    time.Time `json:"parkedAt"`
}

// encodeRefused returns the blobs of a refused message: its body, then the record, so that the body
// of a stored record always exists.
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
