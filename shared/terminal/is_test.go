package terminal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe, a file and the null device are not terminals.
func TestATerminalIsDistinguishedFromEverythingElse(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	for _, f := range []*os.File{read, write, file, null} {
		require.False(t, Is(f), f.Name())
		require.Nil(t, StartProgress(f, "verify"))
		require.NoError(t, f.Close())
	}
	require.False(t, Is(file), "it is closed")

	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal can be made here:", err)
	}
	require.True(t, Is(terminal))
	t.Setenv("TERM", "xterm")
	p := StartProgress(terminal, "verify")
	require.NotNil(t, p)
	p.End()
	t.Setenv("TERM", "dumb")
	require.Nil(t, StartProgress(terminal, "verify"), "it has no lines to redraw")
	require.NoError(t, terminal.Close())
}
