package sessions

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoMoreIsAskedForThanThereIsRoomFor(t *testing.T) {
	r := &room{bytes: 1 << 20}
	require.Equal(t, 4, r.messages(100), "nothing is known: each may have 256 KB")
	r.saw(1000)
	require.Equal(t, 100, r.messages(100))
	r.saw(200_000)
	require.Equal(t, 5, r.messages(100))
	r.saw(5 << 20)
	require.Equal(t, 1, r.messages(100), "one that is larger than the room comes alone")
	for range 1000 {
		r.saw(1000)
	}
	require.Equal(t, 100, r.messages(100), "large ones are forgotten")
	require.Equal(t, 100, (&room{}).messages(100), "without a bound")
}
