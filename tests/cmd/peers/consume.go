package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

const (
	subscriptionPath    = emulator.Topic + "/Subscriptions/" + emulator.Subscription
	readModelCollection = "timeline" // and the projection that writes it
)

// fill publishes events as the producer does, into the subscription.
func (w *world) fill(ctx context.Context, events, aggregates int) (err error) {
	bus, err := azservicebus.NewClientFromConnectionString(w.stack.Endpoint(emulator.EnvServiceBus), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Close(context.WithoutCancel(ctx))) }()
	sender, err := bus.NewSender(emulator.Topic, nil)
	if err != nil {
		return err
	}
	for first := 0; first < events; first += 100 {
		batch, err := sender.NewMessageBatch(ctx, nil)
		if err != nil {
			return err
		}
		for n := first; n < min(first+100, events); n++ {
			m, err := message(n, event{fmt.Sprintf("a%06d", n%aggregates), int64(n/aggregates + 1)})
			if err != nil {
				return err
			}
			if err := batch.AddMessage(m, nil); err != nil {
				return err
			}
		}
		if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
			return fmt.Errorf("fill the subscription: %w", err)
		}
	}
	return nil
}

// message returns the n-th event as the producer sends it.
func message(n int, e event) (*azservicebus.Message, error) {
	d := document(e)
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "documentKey", Value: bson.D{d[0]}},
		{Key: "fullDocument", Value: d},
	})
	if err != nil {
		return nil, err
	}
	position := fmt.Sprintf("82%022X", n+1)
	return envelope.Encode(envelope.Change{
		Stream: database + "." + collection, Token: position, Position: position, Epoch: 1,
		Aggregate: e.aggregate, Session: e.aggregate, Operation: envelope.Insert, Type: "Measured", Version: e.version, Body: body,
	}, envelope.JSON)
}

// completed returns how many messages have left the subscription.
func (w *world) completed() int { return w.stack.ServiceBus.Stats(subscriptionPath).Completed }

// untilCompleted waits until the consumer has completed n messages, or until it has taken the
// longest acceptable time; then the error is errPatience.
func (w *world) untilCompleted(ctx context.Context, n int, longest time.Duration, consumer *instance) error {
	return w.within(ctx, longest, fmt.Sprint(n, " completed messages"), func() bool { return w.completed() >= n }, consumer)
}

// consumeBacklog measures how a backlog of full sessions is projected. A consumer that has not
// finished after a minute is measured by what it has done by then.
func consumeBacklog(ctx context.Context, w *world, p peer, events, aggregates int) ([]result, error) {
	if err := w.fill(ctx, events, aggregates); err != nil {
		return nil, err
	}
	began := time.Now()
	consumer, err := w.consumer(p)
	if err != nil {
		return nil, err
	}
	defer consumer.stop()
	g := watch(ctx, consumer)
	defer g.stop()
	if err := w.untilCompleted(ctx, 1, patience, consumer); err != nil {
		return nil, err
	}
	first, atFirst := time.Now(), g.now()
	if err := w.untilCompleted(ctx, events, time.Minute, consumer); err != nil && !errors.Is(err, errPatience) {
		return nil, err
	}
	now, u, done := time.Now(), g.now(), w.completed()
	verdict, err := w.effects(ctx, done)
	if err != nil {
		return nil, err
	}
	return []result{
		{name: fmt.Sprintf("done, of %d", events), value: float64(done)},
		{name: "events a second, from the start of the process", value: float64(done) / now.Sub(began).Seconds(), compare: true},
		{name: "events a second, from the first event", value: float64(done) / now.Sub(first).Seconds(), compare: true},
		{name: "processor, µs an event", value: float64(u.cpu.Microseconds()) / float64(done), compare: true},
		{name: "processor, µs an event, after the first", value: float64((u.cpu - atFirst.cpu).Microseconds()) / float64(done), compare: true},
		{name: "resident memory, most, MiB", value: u.most, compare: true},
		verdict,
	}, nil
}

// effects compares the read model with the number of completed events. A consumer that is still
// running may have written a little more.
func (w *world) effects(ctx context.Context, completed int) (result, error) {
	cursor, err := w.mongo.Database(readModel).Collection(readModelCollection).Find(ctx, bson.D{})
	if err != nil {
		return result{}, err
	}
	var documents []struct{ Events int }
	if err := cursor.All(ctx, &documents); err != nil {
		return result{}, err
	}
	applied := 0
	for _, d := range documents {
		applied += d.Events
	}
	return result{name: "effects less events", words: fmt.Sprint(applied - completed)}, nil
}

// consumeKilled kills the consumer three times, each time after a counted number of events.
func consumeKilled(ctx context.Context, w *world, p peer, events, aggregates int) ([]result, error) {
	const kills = 3
	if err := w.fill(ctx, events, aggregates); err != nil {
		return nil, err
	}
	var consumer *instance
	for n := range kills + 1 {
		var err error
		if consumer, err = w.consumer(p); err != nil {
			return nil, err
		}
		if err := w.untilCompleted(ctx, events*(n+1)/(kills+1), patience, consumer); err != nil {
			consumer.stop()
			return nil, err
		}
		if n < kills {
			consumer.kill()
		}
	}
	consumer.stop()
	verdict, err := w.effects(ctx, events)
	if err != nil {
		return nil, err
	}
	stats := w.stack.ServiceBus.Stats(subscriptionPath)
	return []result{verdict, {name: "messages left / dead-lettered", words: fmt.Sprintf("%d / %d", stats.Active, stats.DeadLettered)}}, nil
}

// consumePoison makes the read model refuse the events of one aggregate of twenty, and measures
// when the others are done and what has become of that one after twenty seconds.
func consumePoison(ctx context.Context, w *world, p peer) ([]result, error) {
	const events, aggregates = 2000, 20
	_, err := w.mongo.Database(readModel).Collection(readModelCollection).InsertOne(ctx, bson.D{{Key: "_id", Value: "a000000"}, {Key: "events", Value: "no number"}, {Key: "version", Value: int64(0)}})
	if err != nil {
		return nil, err
	}
	if err := w.fill(ctx, events, aggregates); err != nil {
		return nil, err
	}
	began := time.Now()
	consumer, err := w.consumer(p)
	if err != nil {
		return nil, err
	}
	defer consumer.stop()
	healthy := events - events/aggregates
	others := "–"
	if err := w.untilCompleted(ctx, healthy, 20*time.Second, consumer); err == nil {
		others = fmt.Sprintf("%.1f", time.Since(began).Seconds())
	} else if !errors.Is(err, errPatience) {
		others = "ended"
	}
	if err := retry.Sleep(ctx, time.Until(began.Add(20*time.Second))); err != nil {
		return nil, err
	}
	stats := w.stack.ServiceBus.Stats(subscriptionPath)
	return []result{
		{name: "1,900 events of other aggregates done, s", words: others},
		{name: "after 20 s, of the aggregate's 100: in the way / dead-lettered", words: fmt.Sprintf("%d / %d", stats.Active, stats.DeadLettered)},
	}, nil
}
