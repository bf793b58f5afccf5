package terminal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/terminal"
)

func TestIdentifiersAreShortenedToTheirBeginningAndEnd(t *testing.T) {
	t.Parallel()
	require.Equal(t, "826B00EBB8000000022B…640004", terminal.Shorten("826B00EBB8000000022B042C0100296E5A1004AB463C6F707265640004"))
	require.Equal(t, "82692B4C1C0000000329044C", terminal.Shorten("82692B4C1C0000000329044C"))
}
