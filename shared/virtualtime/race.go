package virtualtime

import (
	"go/version"
	"os"
	"runtime"
	"testing"
)

// sound is the first version of Go whose runtime supports bubbles under the race detector. Before
// it, the timers of a bubble share one context of the detector, which several threads use at a
// time: the detector fails a check of its own, or crashes the process.
const sound = "go1.27"

// Require skips t if tests do not run in virtual time: under the race detector, if the runtime does
// not support both at once, or if VIRTUALTIME_RACE=skip, which is for runs that repeat them without
// the detector. [Test] calls it; so must a test that evaluates what several bubbles did together.
func Require(t testing.TB) {
	t.Helper()
	switch run := os.Getenv("VIRTUALTIME_RACE"); {
	case !detector || run == "run":
	case run != "" && run != "skip":
		t.Fatalf("VIRTUALTIME_RACE=%s: is neither run nor skip", run)
	case run == "skip":
		t.Skip("in virtual time: it runs without the race detector")
	case version.Compare(runtime.Version(), sound) < 0:
		t.Skipf("in virtual time: under the race detector the runtime of %s crashes now and then (golang/go#78156); "+
			"run it without -race, or with %s or later (GOTOOLCHAIN), or anyway with VIRTUALTIME_RACE=run", runtime.Version(), sound)
	}
}

// Real skips t, which takes real time, if VIRTUALTIME_REAL=skip. That is for runs of the tests in
// virtual time only, while the others run under the race detector. A test that does not wait needs
// no call.
func Real(t testing.TB) {
	t.Helper()
	switch run := os.Getenv("VIRTUALTIME_REAL"); run {
	case "":
	case "skip":
		t.Skip("in real time: it runs under the race detector")
	default:
		t.Fatalf("VIRTUALTIME_REAL=%s: is not skip", run)
	}
}
