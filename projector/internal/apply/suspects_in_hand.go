package apply

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// forgetTimeout bounds the removal of a record.
	forgetTimeout = 5 * time.Second
	// wholeTrial is the whole of the trial semaphore.
	wholeTrial = 1 << 30
)

// enter waits until no suspect is tried, and records the events that inHand returns, if that is
// needed. leave must be called once the projection has them no longer; it is never nil.
func (w *Watch) enter(ctx context.Context, inHand func() []*envelope.Change) (leave func(), err error) {
	if w == nil {
		return func() {}, nil
	}
	if err := w.trial.Acquire(ctx, 1); err != nil {
		return func() {}, fmt.Errorf("wait for a suspect event: %w", context.Cause(ctx))
	}
	forget := func() {}
	if k := w.known.Load(); k != nil && k.cautious {
		if forget, err = w.record(ctx, false, inHand()...); err != nil {
			w.trial.Release(1)
			return func() {}, err
		}
	}
	return func() {
		w.trial.Release(1)
		forget()
	}, nil
}

// tryAlone calls try with the record of one event, while the projection has no other that is not
// recorded as alone. hangs reports that the projection keeps the event: forget must then be called
// once it has returned.
func (w *Watch) tryAlone(ctx context.Context, c *envelope.Change, try func() (hangs bool)) (forget func(), err error) {
	if err := w.trial.Acquire(ctx, wholeTrial); err != nil {
		return nil, fmt.Errorf("wait to try a suspect event alone: %w", context.Cause(ctx))
	}
	defer w.trial.Release(wholeTrial)
	if forget, err = w.record(ctx, true, c); err != nil {
		return nil, err
	}
	w.log.Warn("an event was in hand when a projector ended: it is given to the projection alone",
		telemetry.KeyAggregate, c.Aggregate, telemetry.KeyMessageID, c.MessageID)
	if try() {
		return forget, nil
	}
	forget()
	return nil, w.acquit(ctx, c.MessageID)
}

// recordLong records an event that the projection has kept for long. forget must be called once it
// has returned.
func (w *Watch) recordLong(ctx context.Context, c *envelope.Change) (forget func(), err error) {
	if w == nil || w.off.Load() {
		return func() {}, nil
	}
	return w.record(ctx, true, c)
}

// acquit forgets the suspicion of an event.
func (w *Watch) acquit(ctx context.Context, messageID string) error {
	if _, err := w.collection.DeleteOne(ctx, bson.D{{Key: "_id", Value: messageID}}); err != nil {
		return w.failed("write", err)
	}
	return w.learn(ctx)
}

// record records events in hand. forget removes the record.
func (w *Watch) record(ctx context.Context, alone bool, changes ...*envelope.Change) (forget func(), err error) {
	r := inHandRecord{ID: bson.NewObjectID(), Kind: kindInHand, Process: w.self.ID, Alone: alone}
	for _, c := range changes {
		if c.MessageID != "" {
			r.Events = append(r.Events, eventOf(c))
		}
	}
	if len(r.Events) == 0 {
		return func() {}, nil
	}
	if _, err := w.collection.InsertOne(ctx, r); err != nil {
		return nil, w.failed("write", err)
	}
	return func() {
		if w.off.Load() { // the process stops, and has removed its records
			return
		}
		// Also until the process ends: the driver does not give up a command that waits for a
		// server once its client is disconnected.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
		defer cancel()
		go func() {
			select {
			case <-w.ended:
				cancel()
			case <-ctx.Done():
			}
		}()
		if err := w.remove(ctx, r.ID); err != nil && !w.off.Load() {
			w.log.Debug("record of events in hand not removed yet", telemetry.KeyError, err)
		}
	}, nil
}

// remove removes records, and those that could not be removed before.
func (w *Watch) remove(ctx context.Context, records ...bson.ObjectID) error {
	w.mu.Lock()
	records = append(records, w.unremoved...)
	w.unremoved = nil
	w.mu.Unlock()
	if len(records) == 0 {
		return nil
	}
	if _, err := w.collection.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: records}}}}); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unremoved = append(w.unremoved, records...)
		return w.failed("write", err)
	}
	return nil
}
