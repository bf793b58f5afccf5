package servicebus

import (
	"sync"
	"time"
)

// later makes calls after a while, each in a goroutine of its own, until it is closed.
type later struct {
	mu     sync.Mutex
	timers map[*time.Timer]struct{} // not fired yet
	closed bool
	wg     sync.WaitGroup // timers, until stopped or served
}

// after calls f once d is over: at once and in the caller's goroutine when d is 0, not at all
// when later is closed before.
func (l *later) after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	l.start(d, f)
}

// start is like after for a call that may be cancelled before it is due. cancel does not wait for
// one that is under way.
func (l *later) start(d time.Duration, f func()) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return func() {}
	}
	if l.timers == nil {
		l.timers = make(map[*time.Timer]struct{})
	}
	l.wg.Add(1)
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		defer l.wg.Done()
		l.mu.Lock()
		delete(l.timers, t)
		closed := l.closed
		l.mu.Unlock()
		if !closed {
			f()
		}
	})
	l.timers[t] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if _, waits := l.timers[t]; waits && t.Stop() {
			delete(l.timers, t)
			l.wg.Done()
		}
	}
}

// close forgets what is not due yet and waits for what is under way.
func (l *later) close() {
	l.mu.Lock()
	l.closed = true
	for t := range l.timers {
		if t.Stop() {
			l.wg.Done()
		}
	}
	clear(l.timers)
	l.mu.Unlock()
	l.wg.Wait()
}
