package alone

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

const after = 10 * time.Minute

// until lets an aggregate fail every ten seconds for so long, while others are committed as often as every says, and gives the time
// after which it was given up; 0 if it was not.
func until(f *Failing, length time.Duration, commits func(elapsed time.Duration) bool) time.Duration {
	began := time.Now()
	for time.Since(began) < length {
		if commits(time.Since(began)) {
			f.Committed("healthy")
		}
		time.Sleep(10 * time.Second)
		if f.Failed("bad", "m").Over {
			return time.Since(began)
		}
	}
	return 0
}

func TestG5OnlyWhatFailsWhileOthersSucceedIsGivenUp(t *testing.T) {
	never := func(time.Duration) bool { return false }
	always := func(time.Duration) bool { return true }
	for name, test := range map[string]struct {
		after   time.Duration
		commits func(time.Duration) bool
		want    time.Duration
	}{
		"others succeed":            {after, always, after + 20*time.Second},
		"nobody does":               {after, never, 0},
		"nobody else was there yet": {after, func(e time.Duration) bool { return e < 10*time.Second }, 0},
		"one every six minutes":     {after, func(e time.Duration) bool { return e%(6*time.Minute) == 0 }, 0},
		"one every four minutes":    {after, func(e time.Duration) bool { return e%(4*time.Minute) == 0 }, after + 4*time.Minute},
		"the database is away for an hour, and ten minutes count from then": {
			after, func(e time.Duration) bool { return e >= time.Hour }, time.Hour + after,
		},
		"for ever": {0, always, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				f := New(test.after)
				require.Equal(t, test.want, until(f, 3*time.Hour, test.commits))
			})
		})
	}
}

func TestAnAggregatesOwnCommitsProveNothing(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		f := New(after)
		f.Failed("bad", "m1")
		time.Sleep(time.Second)
		f.Committed("bad")
		v := f.Failed("bad", "m2")
		require.False(t, v.Alone)
		require.True(t, v.Tell)
		time.Sleep(time.Second)
		f.Committed("other")
		require.True(t, f.Failed("bad", "m2").Alone)
		require.Positive(t, f.Due("bad"))
		require.Zero(t, f.Due("other"))
		f.Committed("bad")
		require.Zero(t, f.Due("bad"))
	})
}
