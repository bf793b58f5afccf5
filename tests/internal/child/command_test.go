package child_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/child"
)

func TestACommandReturnsItsExitCodeAndOutput(t *testing.T) {
	t.Parallel()
	code, output, err := child.Command(t.Context(), []string{"WHAT=this"}, program(t, `echo "$WHAT $1"; echo that >&2; exit 3`), "and")
	require.NoError(t, err)
	require.Equal(t, 3, code)
	require.Equal(t, "this and\nthat\n", output)
	_, _, err = child.Command(t.Context(), nil, filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestACommandIsKilledWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	begun := filepath.Join(t.TempDir(), "begun")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sleeps := program(t, `echo > "$BEGUN"; exec sleep 600`)
	var running sync.WaitGroup
	running.Go(func() {
		code, _, err := child.Command(ctx, []string{"BEGUN=" + begun}, sleeps)
		if err != nil || code != -1 {
			t.Errorf("it ended with code %d and %v", code, err)
		}
	})
	eventually(t, func() bool { _, err := os.Stat(begun); return err == nil })
	cancel()
	running.Wait()
}
