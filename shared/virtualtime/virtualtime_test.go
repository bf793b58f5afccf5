package virtualtime

import (
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scenario is the variable that makes this binary run the tests below that must fail.
const scenario = "VIRTUALTIME_SCENARIO"

// inChild runs one of them in a process of its own, and returns what the process printed.
func inChild(t *testing.T, test string) string {
	t.Helper()
	Require(t)
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), binary, "-test.run", "^("+test+"|TestGoesOn)$", "-test.v")
	cmd.Env = append(os.Environ(), scenario+"=yes")
	printed, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", printed)
	return string(printed)
}

func TestATestThatHangsEndsTheProcessByItsName(t *testing.T) {
	printed := inChild(t, "TestHangs")
	require.Contains(t, printed, "panic: TestHangs/inner has not ended within 1s of real time\n")
	require.Regexp(t, `(?s)goroutine \d+ \[sync\.Mutex\.Lock.*virtualtime\.TestHangs`, printed)
}

func TestADeadlockFailsItsTestAndTheOthersGoOn(t *testing.T) {
	printed := inChild(t, "TestDeadlocks")
	require.Contains(t, printed, "--- FAIL: TestDeadlocks ")
	require.Contains(t, printed, "--- PASS: TestGoesOn ")
	require.Regexp(t, `(?s)deadlock.*chan receive.*virtualtime\.TestDeadlocks`, printed)
}

func TestUnderTheRaceDetectorABubbleRunsIfTheRuntimeSupportsIt(t *testing.T) {
	for how, runs := range map[string]bool{"run": true, "skip": false} {
		t.Run("VIRTUALTIME_RACE="+how, func(t *testing.T) {
			t.Setenv("VIRTUALTIME_RACE", how)
			ran := false
			t.Run("Test", func(t *testing.T) { Test(t, func(*testing.T) { ran = true }) })
			require.Equal(t, runs || !detector, ran)
		})
	}
}

func TestRealTimeIsSkippedOnRequest(t *testing.T) {
	for how, runs := range map[string]bool{"": true, "skip": false} {
		t.Run("VIRTUALTIME_REAL="+how, func(t *testing.T) {
			t.Setenv("VIRTUALTIME_REAL", how)
			ran := false
			t.Run("Real", func(t *testing.T) { Real(t); ran = true })
			require.Equal(t, runs, ran)
		})
	}
}

func TestHangs(t *testing.T) {
	inScenario(t)
	limit = time.Second
	t.Run("inner", func(t *testing.T) {
		Test(t, func(*testing.T) {
			var mu sync.Mutex
			mu.Lock()
			go func() {
				time.Sleep(time.Hour)
				mu.Unlock()
			}()
			mu.Lock()
		})
	})
}

func TestDeadlocks(t *testing.T) {
	inScenario(t)
	Test(t, func(*testing.T) { <-make(chan int) })
}

func TestGoesOn(t *testing.T) { inScenario(t) }

func inScenario(t *testing.T) {
	if os.Getenv(scenario) == "" {
		t.Skip("it must fail: another test runs it in a process of its own")
	}
}
