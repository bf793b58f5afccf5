package netpipe

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// queue is one direction of a connection: chunks of bytes that become readable
// when they are due. One lock guards all of it.
type queue struct {
	limit int           // bytes that may wait; a writer blocks beyond
	delay time.Duration // from write to readable

	mu            sync.Mutex
	changed       chan struct{} // closed at the next change; nil while no goroutine waits
	chunks        []chunk
	size          int
	end           error     // what the reader gets after the last chunk; nil: more may come
	endDue        time.Time // when the end becomes visible
	refused       error     // what a writer gets; nil: writes are taken
	abandoned     bool      // the reader closed its side
	writing       bool      // one write at a time, so that two never mix
	readDeadline  time.Time
	writeDeadline time.Time
}

type chunk struct {
	data []byte
	due  time.Time
}

func newQueue(limit int, delay time.Duration) *queue {
	return &queue{limit: limit, delay: delay}
}

// notify wakes all waiting goroutines. mu is held.
func (q *queue) notify() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// wait lets mu go until something changes or the earliest of the times that
// are set has come. mu is held before and after.
func (q *queue) wait(until ...time.Time) {
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	changed := q.changed
	var first time.Time
	for _, t := range until {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	q.mu.Unlock()
	defer q.mu.Lock()
	if first.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(first))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// read takes what is due, up to len(p) bytes, and blocks while nothing is.
func (q *queue) read(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.abandoned:
			return 0, net.ErrClosed
		case passed(q.readDeadline):
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(q.chunks) > 0:
			if n := q.take(p); n > 0 {
				return n, nil
			}
			q.wait(q.chunks[0].due, q.readDeadline)
		case q.end != nil && !time.Now().Before(q.endDue):
			return 0, q.end
		default:
			q.wait(q.endDue, q.readDeadline)
		}
	}
}

// take copies out of the chunks that are due. mu is held.
func (q *queue) take(p []byte) (n int) {
	now := time.Now()
	for len(q.chunks) > 0 && n < len(p) && !q.chunks[0].due.After(now) {
		m := copy(p[n:], q.chunks[0].data)
		n += m
		if m < len(q.chunks[0].data) {
			q.chunks[0].data = q.chunks[0].data[m:]
			break
		}
		q.chunks[0] = chunk{}
		q.chunks = q.chunks[1:]
	}
	if n > 0 {
		q.size -= n
		q.notify()
	}
	return n
}

// write queues a copy of p and blocks while the queue is full.
func (q *queue) write(p []byte) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing && q.refused == nil && !passed(q.writeDeadline) {
		q.wait(q.writeDeadline)
	}
	if !q.writing {
		q.writing = true
		defer func() { q.writing = false; q.notify() }()
	}
	for {
		switch room := q.limit - q.size; {
		case q.refused != nil:
			return n, q.refused
		case passed(q.writeDeadline):
			return n, os.ErrDeadlineExceeded
		case n == len(p):
			return n, nil
		case room > 0:
			part := append([]byte(nil), p[n:min(len(p), n+room)]...)
			q.chunks = append(q.chunks, chunk{data: part, due: time.Now().Add(q.delay)})
			q.size += len(part)
			n += len(part)
			q.notify()
			if n == len(p) {
				return n, nil
			}
		default:
			q.wait(q.writeDeadline)
		}
	}
}

// closeWrite ends the stream: the reader gets end after what was written, and
// writers get refused from now on. Only the first call counts.
func (q *queue) closeWrite(end, refused error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused == nil {
		q.refused = refused
	}
	if q.end == nil {
		q.end, q.endDue = end, time.Now().Add(q.delay)
	}
	q.notify()
}

// closeRead ends the reading side: what waits is thrown away, reads fail with
// net.ErrClosed, and writers get refused, as a peer does that is gone.
func (q *queue) closeRead(refused error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.abandoned = true
	q.chunks, q.size = nil, 0
	if q.refused == nil {
		q.refused = refused
	}
	q.notify()
}

func (q *queue) setReadDeadline(t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readDeadline = t
	q.notify()
}

func (q *queue) setWriteDeadline(t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writeDeadline = t
	q.notify()
}

// opError words err as package net does; io.EOF stays itself, as io.Reader asks.
func opError(op string, local, remote net.Addr, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // a reader's EOF is never wrapped
		return err
	}
	return &net.OpError{Op: op, Net: "netpipe", Source: local, Addr: remote, Err: err}
}
