package virtualtime

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// window is how long a bubble may stand still, in real time. Only the tests of this package change
// it.
var window = 30 * time.Second

// checks is how often the watcher checks a bubble in one window. While the process is stopped, or
// gets no processor, no checks happen: that time counts as one check.
const checks = 10

// watched are the running bubbles.
var watched watcher

// watcher checks the stacks of its bubbles while there are any.
type watcher struct {
	mu      sync.Mutex
	bubbles map[*bubble]bool
	timer   *time.Timer // not a goroutine that stays: tests count those
	dump    []byte      // kept from one check to the next
}

func (w *watcher) add(b *bubble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bubbles == nil {
		w.bubbles = map[*bubble]bool{}
	}
	w.bubbles[b] = true
	if len(w.bubbles) == 1 {
		w.timer = time.AfterFunc(window/checks, w.check)
	}
}

func (w *watcher) remove(b *bubble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.bubbles, b)
	if len(w.bubbles) == 0 {
		w.timer.Stop()
	}
}

// check compares the stacks of each bubble with those of the last check, and reports bubbles that
// have not moved for the window.
func (w *watcher) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.bubbles) == 0 {
		return
	}
	w.dump = allStacks(w.dump)
	now, states := time.Now(), survey(w.dump)
	for b := range w.bubbles {
		n := b.number.Load()
		s, ok := states[n]
		if n == 0 || !ok || s.moves {
			b.checks = 0
			continue
		}
		if seen := s.print.Sum64(); b.checks == 0 || seen != b.seen {
			b.seen, b.since, b.checks = seen, now, 1
			continue
		}
		b.checks++
		if b.checks > checks && now.Sub(b.since) >= window {
			b.stuck <- report(w.dump, n)
			delete(w.bubbles, b) // it is reported once
		}
	}
	if len(w.bubbles) > 0 {
		w.timer.Reset(window / checks)
	}
}

// report describes a bubble that hangs: first the goroutines that keep time from passing, then
// those that wait for them.
func report(dump []byte, n uint64) string {
	awake, waiting := divide(dump, n)
	return fmt.Sprintf(`nothing in this test's bubble has moved for %s of real time.
Virtual time stands still while a goroutine waits for a mutex, a system call or a channel from outside of the bubble. Here (%d):

%s

Who holds the mutex, or should answer? Perhaps one that waits for virtual time, or for another goroutine of the bubble (%d):

%s

The bubble is abandoned, because it cannot be ended; other tests go on.
`, window, len(awake), strings.Join(awake, "\n\n"), len(waiting), strings.Join(waiting, "\n\n"))
}
