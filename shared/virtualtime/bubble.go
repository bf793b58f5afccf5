package virtualtime

import (
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// bubble is one that runs.
type bubble struct {
	number atomic.Uint64 // as the headers of its goroutines' stacks say; 0 before it is known
	inner  *testing.T    // what f is given; written before number
	stuck  chan string   // the report, once

	// of the watcher
	seen  uint64    // the fingerprint of its stacks at the last look
	since time.Time // when that was first seen
	looks int       // how often it has been seen since
}

// enter learns the bubble's number; it is called in it, before anything else.
func (b *bubble) enter(t *testing.T) {
	b.inner = t
	header := stackOfCaller()
	n, _ := bubbleOf(header)
	if n == 0 {
		t.Fatalf("no watchdog: this version of Go does not print a goroutine's bubble as expected: %s", header)
	}
	b.number.Store(n)
}

// deadlocked is the report of a bubble that synctest gave up.
func (b *bubble) deadlocked(cause any) string {
	_, stacks := divide(allStacks(nil), b.number.Load())
	return fmt.Sprintf("%v\n\n%s", cause, strings.Join(stacks, "\n\n"))
}

// nobody stands in for the test that an abandoned bubble belonged to. It never ends, and what is said to it is dropped.
var nobody testing.T

// abandon takes the bubble's T from the test that is about to end. That test would panic at the next Fail of a goroutine
// which wakes up later, and with it the process. Nothing in testing can do this; should a later Go have no such field, the
// test of an abandoned bubble that wakes up says so.
//
// The goroutines of the bubble read the field without a lock. They do not move now, so nothing is torn; the race
// detector, which knows nothing of that, is not asked.
//
//go:norace
func (b *bubble) abandon() {
	if b.number.Load() == 0 {
		return // nobody has the T
	}
	parent := reflect.ValueOf(b.inner).Elem().FieldByName("parent")
	common := reflect.ValueOf(&nobody).Elem().FieldByName("common")
	if parent.IsValid() && common.IsValid() && parent.Type() == reflect.PointerTo(common.Type()) {
		*(*unsafe.Pointer)(unsafe.Pointer(parent.UnsafeAddr())) = unsafe.Pointer(common.UnsafeAddr())
	}
}
