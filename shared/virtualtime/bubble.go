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

// bubble is a running bubble.
type bubble struct {
	number atomic.Uint64 // from the headers of its goroutines' stacks; 0 before it is known
	inner  *testing.T    // what f is given; written before number
	stuck  chan string   // the report, once

	// owned by the watcher
	seen   uint64    // the fingerprint of its stacks at the last check
	since  time.Time // when that was first seen
	checks int       // how often it has been seen since
}

// enter records the bubble's number. It must be the first call inside the bubble.
func (b *bubble) enter(t *testing.T) {
	b.inner = t
	header := stackOfCaller()
	n, _ := bubbleOf(header)
	if n == 0 {
		t.Fatalf("no watchdog: this version of Go does not print a goroutine's bubble as expected: %s", header)
	}
	b.number.Store(n)
}

// deadlocked is the report of a bubble that synctest found deadlocked.
func (b *bubble) deadlocked(cause any) string {
	_, stacks := divide(allStacks(nil), b.number.Load())
	return fmt.Sprintf("%v\n\n%s", cause, strings.Join(stacks, "\n\n"))
}

// The stand-in for the test of an abandoned bubble. It never ends, and drops its log.
var nobody testing.T

// abandon detaches the bubble's T from the test that is about to end. Otherwise a goroutine that
// wakes up later and calls Fail would panic, and end the process. Package testing has no function
// for this. If a later version of Go does not have the field, the test of an abandoned bubble that
// wakes up fails.
//
// The goroutines of the bubble read the field without a lock. They do not run now, so they cannot
// read half a write; the race detector does not know that, so it is turned off here.
//
//go:norace
func (b *bubble) abandon() {
	if b.number.Load() == 0 {
		return // the T is not in use yet
	}
	parent := reflect.ValueOf(b.inner).Elem().FieldByName("parent")
	common := reflect.ValueOf(&nobody).Elem().FieldByName("common")
	if parent.IsValid() && common.IsValid() && parent.Type() == reflect.PointerTo(common.Type()) {
		*(*unsafe.Pointer)(unsafe.Pointer(parent.UnsafeAddr())) = unsafe.Pointer(common.UnsafeAddr())
	}
}
