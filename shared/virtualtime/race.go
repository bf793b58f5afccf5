package virtualtime

import (
	"go/version"
	"os"
	"runtime"
	"testing"
)

// sound is the first Go whose runtime is up to bubbles under the race detector. Before it, the timers of a bubble share one
// context of the detector, which several threads use at a time; it fails a check of its own, or takes the process with it.
const sound = "go1.27"

// Require skips t where no test runs in virtual time: under the race detector, if the runtime is not up to both at once, or if
// VIRTUALTIME_RACE=skip says that they run without it elsewhere. [Test] does so by itself; a test calls it that judges what
// several bubbles did together.
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
			"run it without -race, or with %s or later (GOTOOLCHAIN), or all the same with VIRTUALTIME_RACE=run", runtime.Version(), sound)
	}
}
