package virtualtime_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// A test that must fail, or end its process, runs in a child: this test binary again, with other
// tests.
var child = flag.Duration("child", 0, "run the scenarios, with this window of the watchdog, instead of the tests")

func TestMain(m *testing.M) {
	flag.Parse()
	if *child > 0 {
		virtualtime.SetWindow(*child)
		testing.Main(regexp.MatchString, append(scenarios, meanings()...), nil, nil)
	}
	os.Exit(m.Run())
}

// inChild runs the scenarios that match, and returns what the child printed and whether all passed.
func inChild(t *testing.T, run string, window time.Duration, flags ...string) (out string, passed bool) {
	t.Helper()
	virtualtime.Require(t)
	binary, err := os.Executable()
	require.NoError(t, err)
	args := append([]string{"-child", window.String(), "-test.run", run, "-test.v", "-test.timeout", "60s"}, flags...)
	cmd := exec.CommandContext(t.Context(), binary, args...)
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Exited() {
		require.NoError(t, err)
	}
	return string(text), err == nil
}
