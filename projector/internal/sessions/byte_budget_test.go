package sessions

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheByteBudgetBoundsRequests(t *testing.T) {
	r := &byteBudget{bytes: 1 << 20}
	require.Equal(t, 4, r.allow(100), "nothing is known: each may have 256 KB")
	r.observe(1000)
	require.Equal(t, 100, r.allow(100))
	r.observe(200_000)
	require.Equal(t, 5, r.allow(100))
	r.observe(5 << 20)
	require.Equal(t, 1, r.allow(100), "one that is larger than the room comes alone")
	for range 1000 {
		r.observe(1000)
	}
	require.Equal(t, 100, r.allow(100), "large ones are forgotten")
	require.Equal(t, 100, (&byteBudget{}).allow(100), "without a bound")
}
