package build

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
)

// taken is a range that was read and folded, and is not written yet.
type taken struct {
	span   span
	all    []*apply.Built
	events int64
	bytes  int // about the size of the effects
}

// add adds an aggregate, unless it is nil.
func (t *taken) add(f *fold) {
	if f == nil {
		return
	}
	built, size := f.end()
	t.all, t.events, t.bytes = append(t.all, built), t.events+f.events, t.bytes+size
}

// ahead holds the ranges that are read while an earlier one is written. They are read by several
// goroutines, and written in their order by one. Only the goroutine of [Builder.Run] uses it.
type ahead struct {
	queue []*future
	// begins is the value behind which the range begins that ends at ends[0].
	begins bson.RawValue
	ends   []bson.RawValue
}

// future is a range that is being read.
type future struct {
	from, to bson.RawValue
	cancel   context.CancelFunc
	reading  sync.WaitGroup
	taken    *taken // read only after reading is over
	err      error  // the same
}

// take returns the range that begins behind a value, and has as many of those behind it read
// meanwhile as Parallel permits.
func (b *Builder) take(ctx context.Context, from bson.RawValue, size int64) (*taken, error) {
	a := &b.ahead
	if size < b.Chunk {
		a.drop()
		to, err := b.id(ctx, from, size-1)
		if err != nil {
			return nil, err
		}
		return b.readRange(ctx, from, to)
	}
	if len(a.queue) > 0 && !a.queue[0].from.Equal(from) {
		a.drop()
	}
	if len(a.queue) == 0 && (len(a.ends) == 0 || !a.begins.Equal(from)) { // or another process has built a range meanwhile
		ends, err := b.divide(ctx, from, size)
		if err != nil {
			return nil, err
		}
		a.begins, a.ends = from, ends
	}
	for len(a.queue) <= b.Parallel && len(a.ends) > 0 {
		reading, cancel := context.WithCancel(ctx)
		f := &future{from: a.begins, to: a.ends[0], cancel: cancel}
		f.reading.Go(func() { f.taken, f.err = b.readRange(reading, f.from, f.to) })
		a.queue, a.begins, a.ends = append(a.queue, f), f.to, a.ends[1:]
	}
	first := a.queue[0]
	first.reading.Wait()
	if first.err != nil {
		a.drop()
		return nil, first.err
	}
	first.cancel()
	a.queue = a.queue[1:]
	return first.taken, nil
}

// drop ends the reading of all ranges that were not taken.
func (a *ahead) drop() {
	if len(a.queue) == 0 {
		return
	}
	ends := make([]bson.RawValue, 0, len(a.queue)+len(a.ends))
	for _, f := range a.queue {
		f.cancel()
		ends = append(ends, f.to)
	}
	for _, f := range a.queue {
		f.reading.Wait()
	}
	a.begins, a.ends, a.queue = a.queue[0].from, append(ends, a.ends...), nil
}
