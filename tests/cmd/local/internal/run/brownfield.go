package run

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// brownfield is a collection that is full before the producers begin. Its read model is built by
// `projector build` while other events are inserted, and the projectors start when that has ended.
// With --snapshot the stream begins with its documents. Without either it is empty.
type brownfield struct {
	built    chan struct{}                    // closed when the read model is built; nil without --build
	progress atomic.Pointer[console.Progress] // of the build; nil without one
	// events is how many events of each aggregate were there before; only read once the services
	// run.
	events map[string]int64
	// copied is how many of them the mirror holds; of the goroutine that watches the read model.
	copied map[string]int64
}

// building reports whether the read model is still to be built.
func (b *brownfield) building() bool { return b.built != nil && !closed(b.built) }

// await returns when the read model is built, or ctx ends.
func (b *brownfield) await(ctx context.Context) {
	if b.built == nil {
		return
	}
	select {
	case <-b.built:
	case <-ctx.Done():
	}
}

// fillSource inserts the events that are there before the producers begin.
func (r *runner) fillSource(ctx context.Context, data *data) error {
	if !r.options.Build && !r.options.BeginWithSnapshot {
		return nil
	}
	r.before.events, r.before.copied = map[string]int64{}, map[string]int64{}
	index := bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}}
	if r.options.Build {
		r.before.built = make(chan struct{})
	} else {
		index = append(index, bson.E{Key: "_id", Value: 1})
	}
	r.event(fmt.Sprintf("inserting %d events that are there before the producers", r.options.Before))
	loader := workload.Loader{Collection: data.source, Sending: func(batch []workload.Event, _ time.Time) {
		if r.options.BeginWithSnapshot { // they are published, and judged with the others
			r.rec.Commit(workload.Commits(batch, time.Now())...)
			return
		}
		for _, e := range batch {
			r.before.events[e.AggregateID]++
		}
	}}
	n := 0
	if _, err := loader.Run(ctx, func(yield func(workload.Event) bool) {
		for e := range workload.Orders(r.options.Seed) {
			if n++; n > r.options.Before || !yield(e) {
				return
			}
		}
	}); err != nil {
		return fmt.Errorf("fill the collection: %w", err)
	}
	_, err := data.source.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: index})
	if err != nil {
		return fmt.Errorf("index the collection: %w", err)
	}
	return nil
}

// build runs `projector build`, after which the projectors start.
func (r *runner) build(ctx context.Context) error {
	if !r.before.building() {
		return nil
	}
	defer close(r.before.built)
	r.event("projector build: the read model, from the documents, while events are inserted")
	moves, over := context.WithCancel(ctx)
	var moving sync.WaitGroup
	moving.Go(func() { // a build is movement, too
		for retry.Sleep(moves, time.Second) == nil {
			r.moved.Store(time.Now().UnixNano())
			r.readProgress(moves)
		}
	})
	defer moving.Wait()
	defer over()
	output, err := r.operate(ctx, "build")
	if err == nil {
		r.event(output)
	}
	r.readProgress(ctx)
	return err
}

// readProgress keeps what `status` reports of the build, for the console, if a console is open.
func (r *runner) readProgress(ctx context.Context) {
	if r.console.address == "" {
		return
	}
	var status struct {
		Build *struct {
			State      string    `json:"state"`
			Ranges     int64     `json:"ranges"`
			Aggregates int64     `json:"aggregates"`
			Events     int64     `json:"events"`
			Total      int64     `json:"total"`
			Changed    time.Time `json:"changed"`
		} `json:"build"`
	}
	if r.ask(ctx, &status, "status", "--json") != nil || status.Build == nil {
		return // the next reading may succeed
	}
	b := status.Build
	r.before.progress.Store(&console.Progress{
		State: b.State, Done: b.Events, Total: b.Total, Unit: "events", Ranges: b.Ranges, Groups: b.Aggregates, ChangedAt: b.Changed,
	})
}

// verify runs `projector verify`, while the projectors still run.
func (r *runner) verify(ctx context.Context) error {
	if !r.options.Build {
		return nil
	}
	output, err := r.operate(ctx, "verify")
	if err == nil {
		r.event("projector verify: " + output)
	}
	return err
}

// operate runs one command with the settings of the projectors, and returns the first line of what
// it printed.
func (r *runner) operate(ctx context.Context, command string) (string, error) {
	output, err := r.command(ctx, command)
	return firstLine(output), err
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
