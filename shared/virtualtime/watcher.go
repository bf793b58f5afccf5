package virtualtime

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// window is how long a bubble may stand still, in real time. Only the tests of this package change it.
var window = 30 * time.Second

// looks is how often the watcher looks at a bubble in one window. A process that is stopped, or gets no processor, does not look
// meanwhile: that counts as one look.
const looks = 10

// watched are the running bubbles.
var watched watcher

// watcher looks at the stacks of its bubbles, while there are any.
type watcher struct {
	mu      sync.Mutex
	bubbles map[*bubble]bool
	timer   *time.Timer // not a goroutine that stays: tests count those
	dump    []byte      // kept from one look to the next
}

func (w *watcher) add(b *bubble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bubbles == nil {
		w.bubbles = map[*bubble]bool{}
	}
	w.bubbles[b] = true
	if len(w.bubbles) == 1 {
		w.timer = time.AfterFunc(window/looks, w.look)
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

// look compares the stacks of each bubble with those of the last look, and reports bubbles that have not moved for the window.
func (w *watcher) look() {
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
			b.looks = 0
			continue
		}
		if seen := s.print.Sum64(); b.looks == 0 || seen != b.seen {
			b.seen, b.since, b.looks = seen, now, 1
			continue
		}
		b.looks++
		if b.looks > looks && now.Sub(b.since) >= window {
			b.stuck <- report(w.dump, n)
			delete(w.bubbles, b) // it is reported once
		}
	}
	if len(w.bubbles) > 0 {
		w.timer.Reset(window / looks)
	}
}

// report describes a bubble that hangs: first the goroutines that keep time from passing, then those that wait in vain.
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
