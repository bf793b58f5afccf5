// Package virtualtime runs tests in virtual time, with [testing/synctest], and decides in which
// runs they are skipped.
//
// Time in a bubble passes only while each of its goroutines waits for another of them, or for time.
// A goroutine that waits for a mutex, a system call or a channel from outside stops the time, and
// if what it waits for needs time to pass, it stops it for ever. [Test] ends the process then, with
// the name of the test and the stacks of all goroutines.
//
// Under the race detector a test in virtual time is skipped, unless the runtime supports both at
// once: see [Require].
//
// The package is only for tests, of all modules: it imports testing. make lint refuses it in code
// that is not a test, and in the packages that the services are built from.
package virtualtime

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// limit is the real time within which a bubble must end, also on a busy machine. Most take less
// than a second.
var limit = 5 * time.Minute

// Test runs f in a bubble of virtual time, as [synctest.Test] does. If the bubble is deadlocked, t
// fails with the stacks of all goroutines, and the other tests go on. If the bubble has not ended
// within five minutes of real time, the process ends with a panic that names t.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	Require(t)
	hang := time.AfterFunc(limit, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("%s has not ended within %s of real time", t.Name(), limit))
	})
	defer hang.Stop()
	defer func() {
		if p := recover(); isDeadlock(p) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%v\n\n%s", p, stacks[:runtime.Stack(stacks, true)])
		} else if p != nil {
			panic(p)
		}
	}()
	synctest.Test(t, f)
}

// Wait is like [synctest.Wait]: it waits until every other goroutine of the bubble waits for
// another of them, or for time.
func Wait() { synctest.Wait() }

// isDeadlock reports whether synctest panicked because the bubble is deadlocked. The type of that
// value is not exported by the runtime.
func isDeadlock(panicked any) bool {
	return fmt.Sprintf("%T", panicked) == "runtime.synctestDeadlockError"
}
