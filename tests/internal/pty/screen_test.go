//go:build linux

package pty

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheScreenShowsWhatATerminalWould(t *testing.T) {
	t.Parallel()
	s := &Screen{}
	for _, step := range []struct {
		written string
		want    []string
	}{
		{"$ run\r\n", []string{"$ run"}},
		{"one\r\n", []string{"$ run", "one"}},
		{"a\r\nb\r\n", []string{"$ run", "one", "a", "b"}},
		{"\x1b[2A\x1b[Jtwo\r\nc\r\n", []string{"$ run", "one", "two", "c"}},
		{"\x1b[1", []string{"$ run", "one", "two", "c"}}, // a sequence in two parts
		{"A\x1b[Jthree", []string{"$ run", "one", "two", "three"}},
		{"\xe2\x80", []string{"$ run", "one", "two", "three"}}, // a character in two parts
		{"\xa6", []string{"$ run", "one", "two", "three…"}},
	} {
		_, err := s.Write([]byte(step.written))
		require.NoError(t, err)
		require.Equal(t, step.want, s.Lines(), "%q", step.written)
	}
}

// A block that is wider than the screen takes more rows than it has lines, so moving up by the
// number of its lines does not reach its beginning.
func TestTheScreenWrapsAndScrolls(t *testing.T) {
	t.Parallel()
	s := &Screen{Columns: 4, Rows: 3}
	_, err := s.Write([]byte("abcdef\r\nx\r\n\x1b[2A\x1b[Jy\r\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"abcd", "y"}, s.Lines())
	_, err = s.Write([]byte("1\r\n2\r\n3\r\n\x1b[9A\x1b[Jz"))
	require.NoError(t, err)
	require.Equal(t, []string{"abcd", "y", "1", "z"}, s.Lines(), "the cursor does not leave the screen")
}
