package run

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// sick is an aggregate whose next effect the read model's database refuses, as it refuses a
// document that does not pass the validator of its collection.
type sick struct {
	database string

	mu        sync.Mutex // guards everything below
	aggregate any        // nil: the next one that is written
	number    int64      // of the event in the aggregate
}

// refuse returns the error code with which the database refuses a write, or 0 if it accepts the
// write. It accepts the record that parks the aggregate, which counts no event.
func (s *sick) refuse(w mongo.Writing) int32 {
	if w.Database != s.database || w.Collection != flags.Timeline || w.Document == nil {
		return 0
	}
	events, ok := w.Document.Lookup("events").AsInt64OK()
	if !ok {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aggregate == nil && events > 1 {
		s.aggregate, s.number = w.ID, events
	}
	if s.aggregate != w.ID || events < s.number {
		return 0
	}
	return mongodb.DocumentValidationFailure
}

// chosen returns the aggregate, or nil before one is chosen.
func (s *sick) chosen() (aggregate any, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aggregate, s.number
}

// poison makes an event one that the read model refuses, until its aggregate is parked. Then the
// cause is gone, and the aggregate is replayed: after the duration of the action or, without one,
// by the person who watches. It returns when the aggregate is no longer parked.
func (r *runner) poison(ctx context.Context, a chaos.Action) error {
	one := &sick{database: r.places.readModel}
	cure := sync.OnceFunc(r.stack.Mongo.RefuseWrites(one.refuse))
	defer cure()
	r.event("poison: the read model refuses the next event")
	aggregate, number := one.chosen()
	for aggregate == nil || !r.isParked(ctx, aggregate) {
		if aggregate == nil && r.loaded.Load() && r.allSeen() {
			r.event("poison: no event is left that could be refused")
			return nil
		}
		if err := retry.Sleep(ctx, grain); err != nil {
			return err
		}
		aggregate, number = one.chosen()
	}
	cure()
	r.event(fmt.Sprintf("poison: event %d of %v is refused and its aggregate is parked; the others go on", number, aggregate))
	if a.For == 0 {
		return r.awaitReplay(ctx, aggregate)
	}
	if err := retry.Sleep(ctx, a.For); err != nil {
		return err
	}
	if !r.isParked(ctx, aggregate) {
		return nil // a person has replayed it
	}
	text, err := r.change(ctx, "parked", "replay", "--", fmt.Sprint(aggregate))
	if err != nil {
		return err
	}
	r.event("poison: the cause is gone; " + firstLine(text))
	return nil
}

// awaitReplay waits until a person has replayed the aggregate.
func (r *runner) awaitReplay(ctx context.Context, aggregate any) error {
	text := fmt.Sprintf("%v is parked, and the cause is gone: replay it on the page Parked. The run waits for that.", aggregate)
	r.console.awaits(text)
	defer r.console.awaits("")
	for r.isParked(ctx, aggregate) {
		r.moved.Store(time.Now().UnixNano()) // a person may take long
		if err := retry.Sleep(ctx, 10*grain); err != nil {
			return err
		}
	}
	r.event(fmt.Sprintf("poison: %v is no longer parked", aggregate))
	return nil
}

// parkedNow returns how many timelines are parked.
func (r *runner) parkedNow(ctx context.Context) (int64, error) {
	n, err := r.readModel.Collection(flags.Timeline).CountDocuments(ctx, bson.D{{Key: "_sluice.parked", Value: bson.D{{Key: "$exists", Value: true}}}})
	if err != nil {
		return 0, fmt.Errorf("count parked aggregates: %w", err)
	}
	return n, nil
}
