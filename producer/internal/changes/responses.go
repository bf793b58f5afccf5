package changes

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// responses reads the responses of an open change stream. While the events of one are taken, it
// requests the next one, so that the round trip between them costs no time.
//
// It belongs to one goroutine, and lends the stream to another one while a request is in flight. So
// its owner may use the stream itself only after an empty response, or before the first event.
type responses struct {
	stream *mongo.ChangeStream
	batch  *batchSizer

	buffer   []byte     // a copy of events: the driver's are valid until its next call only
	events   []bson.Raw // in buffer, but for one that is too large
	returned int        // how many of these were returned
	current  bool       // stream.Current is the event after them

	inFlight *request
	latest   request // the last one that has ended
}

// request is a request for one response.
type request struct {
	began, arrived time.Time
	done           chan struct{}
	cancel         context.CancelFunc
}

// maxCopied is how many bytes of events are copied at a time.
const maxCopied = 2 * targetBytes

// more reports whether next can return an event without waiting for a response.
func (r *responses) more() bool {
	return r.returned < len(r.events) || r.inFlight == nil && (r.current || r.stream.Err() == nil && r.stream.RemainingBatchLength() > 0)
}

// request requests the next response, unless that is requested. ctx must outlast it.
func (r *responses) request(ctx context.Context) {
	if r.inFlight != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	q := &request{began: time.Now(), done: make(chan struct{}), cancel: cancel}
	r.inFlight = q
	go func() {
		defer close(q.done)
		r.current = r.stream.TryNext(ctx)
		q.arrived = time.Now()
	}()
}

// await waits for the response that is requested, and cancels the request if ctx ends.
func (r *responses) await(ctx context.Context) error {
	select {
	case <-r.inFlight.done:
	case <-ctx.Done():
	}
	r.stop()
	return r.stream.Err()
}

// stop ends the request in flight, if there is one.
func (r *responses) stop() {
	if q := r.inFlight; q != nil {
		q.cancel()
		<-q.done
		r.inFlight, r.latest = nil, *q
	}
}

// next returns the next event, which is valid until the next call. It may be called only if more
// returns true. If ahead is set, next requests the following response once it has read all of this
// one. The error is the stream's.
func (r *responses) next(ctx context.Context, ahead bool) (bson.Raw, error) {
	if r.returned == len(r.events) {
		r.read(ctx)
		if len(r.events) == 0 {
			return nil, r.stream.Err()
		}
		if ahead && len(r.buffer) > 0 && !r.current && r.stream.RemainingBatchLength() == 0 {
			r.request(ctx)
		}
	}
	r.returned++
	return r.events[r.returned-1], nil
}

// read reads the next events of the present response, as many as are copied at a time. An event
// that is larger than that is not copied, and is the only one.
func (r *responses) read(ctx context.Context) {
	r.buffer, r.events, r.returned = r.buffer[:0], r.events[:0], 0
	for r.current || r.stream.RemainingBatchLength() > 0 && r.stream.TryNext(ctx) {
		event := r.stream.Current
		large := len(r.buffer)+len(event) > maxCopied
		if large && len(r.events) > 0 {
			r.current = true
			return
		}
		r.current = false
		if r.batch.record(len(event)) {
			r.stream.SetBatchSize(r.batch.requested)
		}
		if large {
			r.events = append(r.events, event)
			return
		}
		r.buffer = append(r.buffer, event...)
		r.events = append(r.events, r.buffer[len(r.buffer)-len(event):])
	}
}
