package terminal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

func TestTextIsWrappedBetweenWords(t *testing.T) {
	t.Parallel()
	text := "    2.5s  producer-1 leads, epoch 3\n\n  ok\n  see /a/very/long/path/in/which/no/blank/is\n"
	require.Equal(t, "    2.5s  producer-1\n      leads, epoch 3\n\n  ok\n  see\n    /a/very/long/path/in/which/no/blank/is\n", terminal.Wrap(text, 24))
	require.Equal(t, text, terminal.Wrap(text, 0))
	require.Equal(t, text, terminal.Wrap(text, 80))
	require.Equal(t, "one\ntwo", terminal.Wrap("one\ntwo", 80))
	require.Equal(t, "ä ö ü\n  x", terminal.Wrap("ä ö ü x", 6), "columns are counted, not bytes")
}
