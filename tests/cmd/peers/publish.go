package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

// team starts the publisher and its standbys. The first leads, if the peer has leaders.
func (w *world) team(p peer) (_ []*instance, stop func(), err error) {
	var team []*instance
	stop = func() {
		for _, i := range slices.Backward(team) {
			i.stop()
		}
	}
	for n := range 1 + p.standbys {
		i, err := w.publisher(p, n)
		if err != nil {
			stop()
			return nil, nil, err
		}
		team = append(team, i)
	}
	return team, stop, nil
}

// noStore makes the broker accept messages without storing them for a subscription.
func (w *world) noStore() error {
	return w.stack.ServiceBus.RemoveSubscription(emulator.Topic, emulator.Subscription)
}

// publishBacklog measures how a backlog is published.
func publishBacklog(ctx context.Context, w *world, p peer, events, aggregates int) (_ []result, err error) {
	if err := errors.Join(w.noStore(), w.prepare(ctx, p)); err != nil {
		return nil, err
	}
	w.count("a")
	if err := w.insert(ctx, "a", events, aggregates); err != nil {
		return nil, err
	}
	began := time.Now()
	team, stop, err := w.team(p)
	if err != nil {
		return nil, err
	}
	defer stop()
	g := watch(ctx, team...)
	defer g.stop()
	if err := w.until(ctx, "the first message", func() bool { return w.distinct() > 0 }, team...); err != nil {
		return nil, err
	}
	atFirst := g.now()
	half := used{}
	var halfAt time.Time
	err = w.until(ctx, "the backlog", func() bool {
		n := w.distinct()
		if halfAt.IsZero() && n >= events/2 {
			half, halfAt = g.now(), time.Now()
		}
		return n >= events
	}, team...)
	if err != nil {
		return nil, err
	}
	u := g.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	perEvent := func(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(n) }
	return append([]result{
		{name: "events a second, from the start of the process", value: float64(events) / w.last.Sub(began).Seconds(), compare: true},
		{name: "events a second, from the first message", value: float64(events) / w.last.Sub(w.first).Seconds(), compare: true},
		{name: "events a second, second half", value: float64(events/2) / w.last.Sub(halfAt).Seconds(), compare: true},
		{name: "start to first message, s", value: w.first.Sub(began).Seconds(), digits: 1},
		{name: "processor, µs an event", value: perEvent(u.cpu, events), compare: true},
		{name: "processor, µs an event, after the first message", value: perEvent(u.cpu-atFirst.cpu, events), compare: true},
		{name: "processor, µs an event, second half", value: perEvent(u.cpu-half.cpu, events/2), compare: true},
		{name: "resident memory, most, MiB", value: u.most, compare: true},
	}, w.verdict(events)), nil
}

// verdict returns how the events arrived. The caller holds the mutex.
func (w *world) verdict(events int) result {
	doubled := 0
	for _, n := range w.stored {
		doubled += n - 1
	}
	return result{name: "lost / doubled / out of order", words: fmt.Sprintf("%d / %d / %d", events-len(w.stored), doubled, w.behind)}
}

// publishRate measures the time from the acknowledgement of an insert to the broker's acceptance,
// with 100 and with 500 events a second, and what an idle peer uses.
func publishRate(ctx context.Context, w *world, p peer) (results []result, err error) {
	if err := w.noStore(); err != nil {
		return nil, err
	}
	team, stop, err := w.team(p)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := errors.Join(w.publishing(ctx, team...), w.settled(ctx)); err != nil {
		return nil, err
	}
	g := watch(ctx, team...)
	defer g.stop()
	idle := g.now()
	const watched = 5 * time.Second
	if err := retry.Sleep(ctx, watched); err != nil {
		return nil, err
	}
	now := g.now()
	results = append(results,
		result{name: "idle: resident memory, MiB", value: now.resident, compare: true},
		result{name: "idle: processor, ms a second", value: float64((now.cpu - idle.cpu).Milliseconds()) / watched.Seconds(), digits: 1},
	)
	for _, rate := range []int{100, 500} {
		w.count(fmt.Sprint("r", rate, "-"))
		before, events := g.now(), rate*10 // for ten seconds
		inserted, err := w.insertSteadily(ctx, rate, events)
		if err != nil {
			return nil, err
		}
		if err := w.until(ctx, "the events", func() bool { return w.distinct() >= events }, team...); err != nil {
			return nil, err
		}
		cpu := g.now().cpu - before.cpu
		var lags []time.Duration
		w.mu.Lock()
		for e, at := range inserted {
			lags = append(lags, max(w.at[e].Sub(at), 0))
		}
		w.mu.Unlock()
		slices.Sort(lags)
		for _, percent := range []int{50, 99} {
			lag := lags[len(lags)*percent/100]
			results = append(results, result{
				name: fmt.Sprintf("%d events a second: p%d, ms", rate, percent), value: float64(lag.Microseconds()) / 1000, digits: 1, compare: true,
			})
		}
		results = append(results, result{name: fmt.Sprintf("%d events a second: processor, µs an event", rate), value: float64(cpu.Microseconds()) / float64(events), compare: true})
	}
	return results, nil
}

// insertSteadily inserts events at a rate by several writers, and returns when each insert was
// acknowledged.
func (w *world) insertSteadily(ctx context.Context, rate, events int) (map[event]time.Time, error) {
	const writers = 20
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	inserted := make(map[event]time.Time, events)
	var mu sync.Mutex
	var writing sync.WaitGroup
	for n := range writers {
		writing.Go(func() {
			if retry.Sleep(ctx, time.Duration(n)*time.Second/time.Duration(rate)) != nil {
				return
			}
			tick := time.NewTicker(writers * time.Second / time.Duration(rate))
			defer tick.Stop()
			for i := range events / writers {
				e := event{fmt.Sprintf("r%d-%02d", rate, n), int64(i + 1)}
				if _, err := w.mongo.Database(database).Collection(collection).InsertOne(ctx, document(e)); err != nil {
					cancel(fmt.Errorf("insert: %w", err))
					return
				}
				now := time.Now()
				mu.Lock()
				inserted[e] = now
				mu.Unlock()
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	writing.Wait()
	return inserted, context.Cause(ctx)
}

// publishKilled kills all instances three times, each time after a counted number of events of a
// backlog, and starts them again.
func publishKilled(ctx context.Context, w *world, p peer, events int) ([]result, error) {
	const kills = 3
	if err := errors.Join(w.noStore(), w.prepare(ctx, p)); err != nil {
		return nil, err
	}
	w.count("k")
	if err := w.insert(ctx, "k", events, 100); err != nil {
		return nil, err
	}
	var waits []string
	for n := range kills + 1 {
		team, stop, err := w.team(p)
		if err != nil {
			return nil, err
		}
		want := events * (n + 1) / (kills + 1)
		before, began := w.distinct(), time.Now()
		err = w.until(ctx, "the next message", func() bool { return w.distinct() > before }, team...)
		if n > 0 {
			waits = append(waits, fmt.Sprintf("%.1f", time.Since(began).Seconds()))
		}
		if err == nil {
			err = w.until(ctx, fmt.Sprint(want, " events"), func() bool { return w.distinct() >= want }, team...)
		}
		if err != nil || n == kills {
			stop()
			if err != nil {
				return nil, err
			}
			break
		}
		for _, i := range team {
			i.kill()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return []result{
		w.verdict(events),
		{name: "sent again after 3 kills", value: float64(w.sent - len(w.stored))},
		{name: "of these dropped by duplicate detection", value: float64(w.dropped)},
		{name: "restart to the next event, s, each", words: fmt.Sprint(waits)},
	}, nil
}

// publishFailover has two instances of every peer, and kills the first for good while events are
// written.
func publishFailover(ctx context.Context, w *world, p peer) ([]result, error) {
	if err := w.noStore(); err != nil {
		return nil, err
	}
	p.standbys = 1
	first, err := w.publisher(p, 0)
	if err != nil {
		return nil, err
	}
	stopFirst := first.stop
	defer func() { stopFirst() }()
	if err := errors.Join(w.publishing(ctx, first), w.settled(ctx)); err != nil {
		return nil, err
	}
	second, err := w.publisher(p, 1)
	if err != nil {
		return nil, err
	}
	defer second.stop()
	if err := retry.Sleep(ctx, 10*time.Second); err != nil { // a JVM takes that long to publish as well
		return nil, err
	}
	const rate, events = 100, 1000
	w.count("r100-")
	before := func() int { w.mu.Lock(); defer w.mu.Unlock(); return w.sent - w.dropped }
	if _, err := w.insertSteadily(ctx, rate, events); err != nil {
		return nil, err
	}
	if err := errors.Join(w.until(ctx, "the events", func() bool { return w.distinct() >= events }, second), w.settled(ctx)); err != nil {
		return nil, err
	}
	w.mu.Lock()
	sends, verdict := w.sent, w.verdict(events)
	w.mu.Unlock()

	w.count("r101-")
	var silence time.Duration
	inserted := make(chan error, 1)
	go func() { // joined below
		_, err := w.insertSteadily(ctx, rate+1, 2000)
		inserted <- err
	}()
	err = w.until(ctx, "200 events", func() bool { return before() >= 200 }, second)
	if err == nil {
		first.kill()
		stopFirst = func() {}
		stored, killed := before(), time.Now()
		err = w.until(ctx, "the next event", func() bool { return before() > stored }, second)
		silence = time.Since(killed)
	}
	if err := errors.Join(err, <-inserted); err != nil {
		return nil, err
	}
	if err := w.until(ctx, "all events", func() bool { return w.distinct() >= 2000 }, second); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	after := w.verdict(2000)
	after.name = "the same, with the kill"
	return []result{
		{name: "two instances: sends for 1,000 events", value: float64(sends)},
		verdict,
		{name: "kill of the first to the next event, s", value: silence.Seconds(), digits: 1},
		after,
	}, nil
}
