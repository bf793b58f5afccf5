package virtualtime

import (
	"bytes"
	"hash/maphash"
	"iter"
	"runtime"
	"strconv"
	"strings"
)

// The runtime prints a goroutine of a bubble as
//
//	goroutine 38 [sync.Mutex.Lock, 2 minutes, synctest bubble 3]:
//	sync.(*Mutex).lockSlow(0xc000014130)
//	…
//
// with an empty line between goroutines. A state that ends with "(durable)" is a wait that can end
// in virtual time.

// stackOfCaller is the beginning of the calling goroutine's stack, with the header.
func stackOfCaller() []byte {
	var start [256]byte
	return start[:runtime.Stack(start[:], false)]
}

// allStacks returns the stacks of all goroutines, in the given buffer if that is large enough.
func allStacks(buffer []byte) []byte {
	buffer = buffer[:cap(buffer)]
	for {
		n := runtime.Stack(buffer, true)
		if n < len(buffer) {
			return buffer[:n]
		}
		buffer = make([]byte, max(1<<20, 2*len(buffer)))
	}
}

// stacks divides a dump into its goroutines.
func stacks(dump []byte) iter.Seq[[]byte] {
	return bytes.SplitSeq(bytes.TrimSpace(dump), []byte("\n\n"))
}

// bubbleOf returns the number of a goroutine's bubble, 0 if it is in none, and the goroutine's
// state.
func bubbleOf(stack []byte) (number uint64, state string) {
	header, _, _ := bytes.Cut(stack, []byte("\n"))
	_, rest, _ := bytes.Cut(header, []byte("["))
	if end := bytes.IndexAny(rest, ",]"); end >= 0 {
		state = strings.TrimSuffix(string(rest[:end]), " (scan)")
	}
	_, rest, _ = bytes.Cut(rest, []byte(", synctest bubble "))
	digits := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if digits > 0 {
		number, _ = strconv.ParseUint(string(rest[:digits]), 10, 64)
	}
	return number, state
}

// moves reports whether a goroutine in this state runs, or would run if it had a processor.
func moves(state string) bool {
	switch state {
	case "running", "runnable", "preempted", "copystack":
		return true
	}
	return false
}

// stillness is the state of a bubble at one check.
type stillness struct {
	moves bool
	print maphash.Hash // of everything but how many minutes something has waited
}

var seed = maphash.MakeSeed()

// survey returns how each bubble in a dump is.
func survey(dump []byte) map[uint64]*stillness {
	found := map[uint64]*stillness{}
	for stack := range stacks(dump) {
		n, state := bubbleOf(stack)
		if n == 0 {
			continue
		}
		s := found[n]
		if s == nil {
			s = &stillness{}
			s.print.SetSeed(seed)
			found[n] = s
		}
		s.moves = s.moves || moves(state)
		header, frames, _ := bytes.Cut(stack, []byte("\n"))
		for part := range bytes.SplitSeq(header, []byte(", ")) {
			if !bytes.HasSuffix(part, []byte(" minutes")) {
				s.print.Write(bytes.TrimSuffix(part, []byte(" (scan)")))
			}
		}
		s.print.Write(frames)
	}
	return found
}

// divide returns a bubble's goroutines in a dump: those that keep virtual time from passing, and
// the others.
func divide(dump []byte, number uint64) (awake, waiting []string) {
	for stack := range stacks(dump) {
		n, state := bubbleOf(stack)
		switch {
		case n != number:
		case strings.HasSuffix(state, "(durable)"):
			waiting = append(waiting, string(stack))
		default:
			awake = append(awake, string(stack))
		}
	}
	return awake, waiting
}
