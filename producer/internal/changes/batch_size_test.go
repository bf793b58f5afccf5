package changes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswersAskForAboutAMegabyte(t *testing.T) {
	a := newAnswers()
	require.EqualValues(t, firstAnswer, a.asked)
	take := func(size, times int) (changes int) {
		for range times {
			if _, changed := a.took(size); changed {
				changes++
			}
		}
		return changes
	}
	take(400, 100)
	require.EqualValues(t, most, a.asked)
	take(16<<10, 200)
	require.InEpsilon(t, 64, a.asked, 0.34)
	take(16<<20, 200)
	require.EqualValues(t, fewest, a.asked)
	take(2<<10, 500)
	require.InEpsilon(t, 512, a.asked, 0.34)
	require.Zero(t, take(2200, 500), "nearly the same size asks for the same")
	require.Positive(t, a.asked)
}

// What cannot be given in an answer is looked for one by one, and no longer than the answer was.
func TestAnswersOfOneEventEnd(t *testing.T) {
	a := newAnswers()
	require.True(t, a.one())
	require.False(t, a.one(), "it is at it")
	for range most - 1 {
		number, changed := a.took(400)
		require.False(t, changed)
		require.EqualValues(t, 1, number)
	}
	number, changed := a.took(400)
	require.True(t, changed)
	require.EqualValues(t, firstAnswer, number)
	require.True(t, a.one())
}
