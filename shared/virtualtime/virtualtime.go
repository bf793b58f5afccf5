package virtualtime

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// Test runs f in a bubble of virtual time, as [synctest.Test] does, and fails t if the bubble
// hangs. The texts of the stories are added to that failure: what the test has done so far, say, or
// the command that repeats it. They are called outside of the bubble, while its goroutines stand
// still.
func Test(t *testing.T, f func(t *testing.T), stories ...func() string) {
	t.Helper()
	Require(t)
	if n, _ := bubbleOf(stackOfCaller()); n != 0 {
		panic("virtualtime.Test called from within a bubble")
	}
	b := &bubble{stuck: make(chan string, 1)}
	ended := make(chan outcome, 1)
	watched.add(b)
	defer watched.remove(b)
	go func() {
		var o outcome
		defer func() {
			o.panicked = recover()
			if isDeadlock(o.panicked) {
				o.deadlock = b.deadlocked(o.panicked)
			}
			ended <- o
		}()
		synctest.Test(t, func(t *testing.T) {
			b.enter(t)
			f(t)
		})
		o.returned = true
	}()

	var report string
	select {
	case o := <-ended:
		switch {
		case o.returned:
			return
		case o.deadlock != "":
			report = o.deadlock
		case o.panicked != nil:
			panic(o.panicked)
		default: // synctest.Test has called t.FailNow, which ends the goroutine it is called on
			t.FailNow()
		}
	case report = <-b.stuck:
		// At once, and with the name: go test shows the failure of a subtest only when its parent
		// ends, which may be never.
		fmt.Fprintf(os.Stderr, "virtualtime: %s hangs: nothing in its bubble has moved for %s\n", t.Name(), window)
	}
	b.abandon()
	for _, story := range stories {
		report += "\n" + storyText(story)
	}
	t.Fatal(report)
}

// Wait is [synctest.Wait]: it waits until every other goroutine of the bubble waits for another of
// them, or for time.
func Wait() { synctest.Wait() }

// outcome is how a bubble has ended: f has returned or has called SkipNow, a panic, or a failure.
type outcome struct {
	returned bool
	deadlock string // the report, if the panic is about a deadlock
	panicked any
}

// isDeadlock reports whether synctest panicked because the bubble is deadlocked. The type of that
// value is not exported by the runtime. Any other panic goes on.
func isDeadlock(panicked any) bool {
	return fmt.Sprintf("%T", panicked) == "runtime.synctestDeadlockError"
}

// storyText returns the text of a story, or a note if the story does not return because it waits
// for a lock.
func storyText(story func() string) string {
	text := make(chan string, 1)
	go func() { text <- story() }()
	select {
	case s := <-text:
		return s
	case <-time.After(window / checks):
		return "(what the test did is not known: a lock that it needs is held in the hanging bubble)"
	}
}
