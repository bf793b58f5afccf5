package operator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPositionsAreShortenedInLists(t *testing.T) {
	const long = "826B00EBB8000000022B042C0100296E5A1004AB463C6F707265640004"
	require.Equal(t, "826B00EBB8000000022B…640004", Request{}.shorten(long))
	require.Equal(t, long, Request{wide: true}.shorten(long))
	require.Equal(t, "82692B4C1C0000000329044C", Request{}.shorten("82692B4C1C0000000329044C"))
}
