package memory_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/memory"
)

// What a process may not have ends it, and no other.
func TestAProcessThatNeedsMoreIsKilled(t *testing.T) {
	g, err := memory.Limit("limited", 32<<20)
	if errors.Is(err, memory.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	enter := g.Enter()
	run := func(command ...string) error {
		return exec.CommandContext(t.Context(), enter[0], append(enter[1:], command...)...).Run()
	}
	killed := func() int {
		n, err := g.Killed()
		require.NoError(t, err)
		return n
	}
	require.NoError(t, run("sh", "-c", "echo fine"))
	require.Zero(t, killed())
	require.Error(t, run("dd", "if=/dev/zero", "of=/dev/null", "bs=256M", "count=1"))
	require.Equal(t, 1, killed())
}

func TestWithoutAGroupNothingIsLimited(t *testing.T) {
	var none *memory.Group
	require.Empty(t, none.Enter())
	n, err := none.Killed()
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, none.Close())
}

func TestAProcessIsMeasured(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("only Linux says how much a process has had")
	}
	require.Greater(t, memory.Peak(os.Getpid()), int64(1<<20))
}
