package virtualtime_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// brief is a window for bubbles that hang at once.
const brief = 300 * time.Millisecond

const hung = "nothing in this test's bubble has moved for 300ms of real time"

func TestAHangFailsItsTestByName(t *testing.T) {
	t.Parallel()
	for run, awake := range map[string]string{
		"TestMutex":   "virtualtime_test.waitForMutex(",
		"TestCleanup": "virtualtime_test.waitForMutex(",
		"TestOutside": "virtualtime_test.testOutside.func1(",
	} {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			out, passed := inChild(t, run+"$|TestZSibling", brief)
			require.False(t, passed)
			require.Contains(t, out, "virtualtime: "+run+" hangs")
			require.Equal(t, []string{"FAIL: " + run, "PASS: TestZSibling"}, verdicts(out), out)
			first, others, ok := strings.Cut(failure(t, out, run), "Who holds the mutex")
			require.True(t, ok, out)
			require.Contains(t, first, hung)
			require.Contains(t, first, awake)
			require.NotContains(t, others, awake)
			require.Contains(t, others, "synctest.Run")
			require.NotContains(t, out, "after")
		})
	}
}

func TestTheReportHasWhoHoldsTheMutexAndWhatWasLogged(t *testing.T) {
	t.Parallel()
	out, _ := inChild(t, "TestMutex$", brief)
	_, others, _ := strings.Cut(failure(t, out, "TestMutex"), "Who holds the mutex")
	require.Contains(t, others, "virtualtime_test.holdMutex(")
	require.Contains(t, out, "before it hangs")
	require.Regexp(t, `scenarios_test.go:\d+: nothing in this test's bubble`, out, "the failure names the line of the test")
}

// Subtests side by side are judged each for itself, and a report has the stacks of its own bubble
// alone.
func TestAHangLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	out, _ := inChild(t, "TestSeeds|TestZSibling", brief)
	require.ElementsMatch(t, []string{
		"FAIL: TestSeeds", "PASS: TestSeeds/seed/0", "FAIL: TestSeeds/seed/1", "PASS: TestSeeds/seed/2", "PASS: TestSeeds/seed/3",
		"FAIL: TestSeeds/seed/4", "FAIL: TestSeeds/seed/5", "PASS: TestZSibling",
	}, verdicts(out), out)
	for n, other := range map[string]string{"1": "4", "4": "1"} {
		text := failure(t, out, "TestSeeds/seed/"+n)
		require.Contains(t, text, hung)
		require.Contains(t, text, "virtualtime_test.hangOfSeed"+n)
		require.NotContains(t, text, "virtualtime_test.hangOfSeed"+other)
	}
	require.NotContains(t, failure(t, out, "TestSeeds/seed/5"), hung)
}

func TestAHangReportsItsStories(t *testing.T) {
	t.Parallel()
	out, _ := inChild(t, "TestStory|TestLockedStory", brief)
	text := failure(t, out, "TestStory")
	require.Contains(t, text, "again: make it so\n")
	require.Contains(t, text, "once upon a time\n")
	require.Contains(t, failure(t, out, "TestLockedStory"), "a lock that it needs is held")
}

// However little it gets done, who computes does not hang, and neither does who waits for one thing
// after the other.
func TestASlowBubbleDoesNotHang(t *testing.T) {
	t.Parallel()
	for _, run := range []string{"TestSlow", "TestServed"} {
		for _, processors := range []string{"1", "2"} {
			t.Run(run+"/"+processors, func(t *testing.T) {
				t.Parallel()
				out, passed := inChild(t, run+"$|TestZSibling", brief, "-test.cpu="+processors)
				require.True(t, passed, out)
				require.Len(t, verdicts(out), 2, out)
			})
		}
	}
}

// What the watchdog does not find, go test ends after its -timeout. It names what was running; what
// hung has its name too, although the parent that shows the failures of its subtests never ends.
func TestWhatMovesForEverIsNamedByGoTest(t *testing.T) {
	t.Parallel()
	out, passed := inChild(t, "TestForEver", brief, "-test.v=false", "-test.timeout=5s")
	require.False(t, passed)
	require.Contains(t, out, "virtualtime: TestForEver/hangs hangs: nothing in its bubble has moved for 300ms\n")
	require.Regexp(t, `panic: test timed out after 5s\n\s+running tests:\n\s+TestForEver/polls \(\d+s\)\n\n`, out)
	require.Contains(t, out, "virtualtime_test.waitForMutex(", "the stacks of all goroutines")
}

// What plain synctest ends the process for.
func TestADeadlockFailsItsTestByName(t *testing.T) {
	t.Parallel()
	out, _ := inChild(t, "TestDeadlock|TestLeak|TestZSibling", time.Hour)
	require.Equal(t, []string{"FAIL: TestDeadlock", "FAIL: TestLeak", "PASS: TestZSibling"}, verdicts(out), out)
	text := failure(t, out, "TestDeadlock")
	require.Contains(t, text, "deadlock: all goroutines in bubble are blocked")
	require.Contains(t, text, "virtualtime_test.testDeadlock.func1(")
	require.Contains(t, text, "before the deadlock")
	require.Contains(t, text, "again: deadlock")
	text = failure(t, out, "TestLeak")
	require.Contains(t, text, "deadlock: main bubble goroutine has exited but blocked goroutines remain")
	require.Contains(t, text, "virtualtime_test.testLeak.func1.1(")
	require.Contains(t, text, "and it failed")
}

// A bubble that was given up and wakes up later has no test any more, and does not end the process
// with its failures.
func TestAnAbandonedBubbleMayWakeUp(t *testing.T) {
	t.Parallel()
	out, _ := inChild(t, "TestWakesUp|TestXWaker|TestZSibling", brief)
	require.Equal(t, []string{"FAIL: TestWakesUp", "PASS: TestXWaker", "PASS: TestZSibling"}, verdicts(out), out)
	require.NotContains(t, out, "late")
}

// A panic of synctest itself is one of the test.
func TestAPanicOfSynctestIsHandedOn(t *testing.T) {
	t.Setenv("GODEBUG", "asynctimerchan=1")
	out, passed := inChild(t, "TestZSibling", time.Hour)
	require.False(t, passed)
	require.Equal(t, []string{"FAIL: TestZSibling"}, verdicts(out), out)
	require.Contains(t, out, "panic: synctest.Run not supported with asynctimerchan!=0")
}

func TestABubbleHasNoBubble(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		require.PanicsWithValue(t, "virtualtime.Test called from within a bubble", func() { virtualtime.Test(t, func(*testing.T) {}) })
	})
}

var verdict = regexp.MustCompile(`(?m)^ *--- ((?:PASS|FAIL|SKIP): \S+) \(`)

// verdicts are the tests' ends, in their order.
func verdicts(out string) (found []string) {
	for _, m := range verdict.FindAllStringSubmatch(out, -1) {
		found = append(found, m[1])
	}
	return found
}

// failure returns the output of a test, with -v: from its name to the next test's.
func failure(t *testing.T, out, name string) (said string) {
	t.Helper()
	about := regexp.MustCompile(`(?m)^(?:===|---) (?:RUN|CONT|NAME|PAUSE|FAIL:|PASS:) +(\S+).*$`)
	for out != "" {
		at := about.FindStringSubmatchIndex(out)
		require.NotNil(t, at)
		is, rest := out[at[2]:at[3]], out[at[1]:]
		next := about.FindStringIndex(rest)
		if next == nil {
			next = []int{len(rest)}
		}
		if is == name {
			said += rest[:next[0]]
		}
		if out = rest[next[0]:]; next[0] == len(rest) {
			out = ""
		}
	}
	require.NotEmpty(t, said, "nothing of %s", name)
	return said
}
