package netns_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/netns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two namespaces are independent: the same address is free in both, and each answers only within
// itself.
func TestASocketBelongsToTheNamespaceInWhichItWasMade(t *testing.T) {
	netns.Require(t)
	const addr = "127.0.0.1:7"
	spaces := map[string]*netns.Namespace{"a": netns.ForTest(t.Context(), t, "a"), "b": netns.ForTest(t.Context(), t, "b")}
	for name, space := range spaces {
		l, err := space.Listen(t.Context(), "tcp", addr)
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				_, err = io.WriteString(c, name)
				c.Close()
			}
			served <- err
		}()
		t.Cleanup(func() {
			l.Close()
			require.NoError(t, <-served)
		})
	}
	for name, space := range spaces {
		c, err := space.Dial(t.Context(), "tcp", addr)
		require.NoError(t, err)
		heard, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, name, string(heard))
		c.Close()
	}
}

func TestAProcessIsStartedWithin(t *testing.T) {
	netns.Require(t)
	n := netns.ForTest(t.Context(), t, "process")
	enter := append(n.Enter(), "cat", "/proc/net/dev")
	output, err := exec.CommandContext(t.Context(), enter[0], enter[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "lo:")
	require.NotContains(t, string(output), "eth", "the process sees the machine's devices")
}

// A killed run leaves its namespaces behind. The next run removes them, and no namespace of a live
// process.
func TestNamespacesOfKilledRunsAreRemoved(t *testing.T) {
	netns.Require(t)
	const left = "sluice-1-1-1-left" // of a process 1 with another start time, so it has ended
	require.NoError(t, netns.IP(t.Context(), "netns", "add", left))
	t.Cleanup(func() { _ = netns.IP(context.WithoutCancel(t.Context()), "netns", "delete", left) }) // if the test fails
	own := netns.ForTest(t.Context(), t, "own")

	// Another process does what New does first.
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestAProcessIsStartedWithin$")
	output, err := other.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.NoFileExists(t, filepath.Join("/run/netns", left))
	require.FileExists(t, filepath.Join("/run/netns", own.Name()))
}
