package changes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBatchSizerRequestsAboutAMegabyte(t *testing.T) {
	a := newBatchSizer()
	require.EqualValues(t, initialEvents, a.requested)
	take := func(size, times int) (changes int) {
		for range times {
			if a.record(size) {
				changes++
			}
		}
		return changes
	}
	take(400, 100)
	require.EqualValues(t, maxEvents, a.requested)
	take(16<<10, 200)
	require.InEpsilon(t, 64, a.requested, 0.34)
	take(16<<20, 200)
	require.EqualValues(t, minEvents, a.requested)
	take(2<<10, 500)
	require.InEpsilon(t, 512, a.requested, 0.34)
	require.Zero(t, take(2200, 500), "nearly the same size asks for the same")
	require.Positive(t, a.requested)
}

// Events that do not fit into a response are requested one by one, for no longer than one response.
func TestRequestingOneByOneEnds(t *testing.T) {
	a := newBatchSizer()
	require.True(t, a.oneByOne())
	require.False(t, a.oneByOne(), "it is at it")
	for range maxEvents - 1 {
		require.False(t, a.record(400))
		require.EqualValues(t, 1, a.requested)
	}
	require.True(t, a.record(400))
	require.EqualValues(t, initialEvents, a.requested)
	require.True(t, a.oneByOne())
}
