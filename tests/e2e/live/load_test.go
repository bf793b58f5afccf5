package live

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

const (
	// step is how many events of each collection are committed for one step of a test, so that a
	// slow machine gets no more work; half of them may be invisible at a time.
	step = 40
	// rate is the events a second while a test waits for a condition.
	rate = 50
)

// counted returns an endless sequence of events of a few aggregates in random order.
func counted(prefix string, aggregates int, random *rand.Rand) iter.Seq[workload.Event] {
	return func(yield func(workload.Event) bool) {
		versions := make([]int64, aggregates)
		for {
			n := random.IntN(aggregates)
			versions[n]++
			e := workload.Event{
				AggregateID: fmt.Sprintf("%s-%d", prefix, n), Version: versions[n], Type: fmt.Sprintf("Kind%d", random.IntN(3)),
				OccurredAt: fmt.Sprintf("%s-%d@%d", prefix, n, versions[n]),
			}
			if !yield(e) {
				return
			}
		}
	}
}

// each applies do to every event.
func each(events iter.Seq[workload.Event], do func(*workload.Event)) iter.Seq[workload.Event] {
	return func(yield func(workload.Event) bool) {
		for e := range events {
			if do(&e); !yield(e) {
				return
			}
		}
	}
}

// load commits events to a collection until the test has enough.
func (w *world) load(collection string, events iter.Seq[workload.Event]) {
	var some iter.Seq[workload.Event] = func(yield func(workload.Event) bool) {
		for e := range events {
			if w.enough.Load() || !yield(e) {
				return
			}
		}
	}
	var mine atomic.Int64
	loader := workload.Loader{
		Collection: w.client.Database(database).Collection(collection),
		Rate:       rate,
		Allowed: func() int64 {
			room := mine.Load() + max(0, step-w.behind())/2
			switch {
			case w.enough.Load():
				return math.MaxInt64 // the loader sees the end of the sequence
			case w.flowing.Load():
				return room
			}
			return min(room, w.steps.Load()*step)
		},
		Sending: func(batch []workload.Event, at time.Time) {
			mine.Add(int64(len(batch)))
			w.committing(batch, at)
		},
	}
	w.outside.Go(func() {
		if _, err := loader.Run(w.Context(), some); err != nil {
			w.Errorf("commit events: %v", err)
		}
	})
}
