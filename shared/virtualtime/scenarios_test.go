package virtualtime_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// scenarios are tests that run in a child.
var scenarios = []testing.InternalTest{
	{Name: "TestMutex", F: testMutex},
	{Name: "TestOutside", F: testOutside},
	{Name: "TestCleanup", F: testCleanup},
	{Name: "TestSeeds", F: testSeeds},
	{Name: "TestStory", F: testStory},
	{Name: "TestLockedStory", F: testLockedStory},
	{Name: "TestSlow", F: testSlow},
	{Name: "TestServed", F: testServed},
	{Name: "TestDeadlock", F: testDeadlock},
	{Name: "TestLeak", F: testLeak},
	{Name: "TestWakesUp", F: testWakesUp},
	{Name: "TestXWaker", F: testWaker}, // after the one before
	{Name: "TestForEver", F: testForEver},
	{Name: "TestZSibling", F: testSibling}, // after the others: it shows that they have not ended the process
}

func testSibling(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) { time.Sleep(time.Hour) })
}

// hang waits for a mutex whose holder waits for virtual time.
func hang() {
	var mu sync.Mutex
	go holdMutex(&mu)
	virtualtime.Wait()
	waitForMutex(&mu)
}

func holdMutex(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
	time.Sleep(time.Second)
}

func waitForMutex(mu *sync.Mutex) {
	mu.Lock()
	defer mu.Unlock()
}

func testMutex(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		t.Log("before it hangs")
		hang()
		t.Log("after it hung")
	})
	t.Log("after the bubble")
}

func testOutside(t *testing.T) {
	outside := make(chan bool)
	virtualtime.Test(t, func(*testing.T) { <-outside })
}

func testCleanup(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) { t.Cleanup(hang) })
}

// testSeeds is subtests side by side, some of which hang.
func testSeeds(t *testing.T) {
	for seed := range 6 {
		t.Run(fmt.Sprint("seed/", seed), func(t *testing.T) {
			t.Parallel()
			virtualtime.Test(t, func(t *testing.T) {
				for range 10 {
					time.Sleep(time.Hour)
				}
				switch seed {
				case 1:
					hangOfSeed1()
				case 4:
					hangOfSeed4()
				case 5:
					t.Error("seed 5 is broken")
				}
			})
		})
	}
}

func hangOfSeed1() { hang() }

func hangOfSeed4() { hang() }

// testForEver hangs, and polls beside that.
func testForEver(t *testing.T) {
	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		virtualtime.Test(t, func(*testing.T) { hang() })
	})
	t.Run("polls", func(t *testing.T) {
		t.Parallel()
		virtualtime.Test(t, func(*testing.T) {
			for {
				time.Sleep(time.Second)
			}
		})
	})
}

func testStory(t *testing.T) {
	virtualtime.Test(t, func(*testing.T) { hang() }, func() string { return "again: make it so" }, func() string { return "once upon a time" })
}

func testLockedStory(t *testing.T) {
	var mu sync.Mutex
	virtualtime.Test(t, func(*testing.T) {
		mu.Lock()
		hang()
	}, func() string {
		mu.Lock()
		return ""
	})
}

// testSlow computes for many windows of real time, while a goroutine waits for a mutex all the
// time.
func testSlow(t *testing.T) {
	var over atomic.Bool
	time.AfterFunc(5**child, func() { over.Store(true) })
	virtualtime.Test(t, func(*testing.T) {
		var mu sync.Mutex
		mu.Lock()
		defer mu.Unlock()
		go waitForMutex(&mu)
		for !over.Load() {
		}
	})
}

// testServed waits for something outside at every check of the watchdog, each time at another
// place.
func testServed(t *testing.T) {
	outside := make(chan bool)
	go func() {
		defer close(outside)
		for range 100 {
			time.Sleep(*child / 20)
			outside <- true
		}
	}()
	virtualtime.Test(t, func(*testing.T) {
		for depth := 0; waitBelow(depth%7, outside); depth++ {
		}
	})
}

func waitBelow(depth int, outside <-chan bool) (more bool) {
	if depth > 0 {
		return waitBelow(depth-1, outside)
	}
	return <-outside
}

func testDeadlock(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		t.Log("before the deadlock")
		<-make(chan bool)
	}, func() string { return "again: deadlock" })
}

func testLeak(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		go func() { <-make(chan bool) }()
		t.Error("and it failed")
	})
}

// testWakesUp hangs until another test wakes it up; then it fails in every way there is.
func testWakesUp(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		t.Cleanup(func() {
			require.ErrorIs(t, t.Context().Err(), context.Canceled)
			t.Error("the cleanup fails late")
		})
		t.Log(t.TempDir())
		<-wake
		var others sync.WaitGroup
		others.Go(func() {
			t.Helper()
			time.Sleep(time.Hour)
			t.Logf("late: %s %v", t.Name(), t.Failed())
			t.Fail()
		})
		others.Go(func() { fmt.Fprintln(t.Output(), "late") })
		others.Wait()
		t.FailNow()
	})
}

var wake = make(chan bool)

func testWaker(t *testing.T) {
	close(wake)
	require.Eventually(t, func() bool {
		all := make([]byte, 1<<20)
		return !strings.Contains(string(all[:runtime.Stack(all, true)]), "testWakesUp")
	}, 10*time.Second, time.Millisecond)
}
