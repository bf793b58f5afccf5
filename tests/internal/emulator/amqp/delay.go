package amqp

import (
	"io"
	"sync"
	"time"
)

// delayed returns a write function that hands bytes to w after latency, in order, without
// holding up its caller, and a function that waits until everything has been written. With no
// latency it writes at once.
func delayed(w io.Writer, latency time.Duration) (write func([]byte) error, join func()) {
	if latency <= 0 {
		return func(b []byte) error { _, err := w.Write(b); return err }, func() {}
	}
	type chunk struct {
		due time.Time
		b   []byte
	}
	var (
		wg     sync.WaitGroup
		queue  = make(chan chunk, 1024)
		failed = make(chan error, 1)
	)
	wg.Go(func() {
		var err error
		for c := range queue {
			if err != nil {
				continue // drain, so that the writer never blocks on a dead peer
			}
			time.Sleep(time.Until(c.due))
			if _, err = w.Write(c.b); err != nil {
				failed <- err
			}
		}
	})
	write = func(b []byte) error {
		select {
		case err := <-failed:
			return err
		case queue <- chunk{due: time.Now().Add(latency), b: append([]byte(nil), b...)}:
			return nil
		}
	}
	return write, func() { close(queue); wg.Wait() }
}
