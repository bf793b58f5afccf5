package gaps

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func TestAnEventWaitsAsLongAsItMay(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		g := New(30 * time.Second)
		began := time.Now()
		for {
			pause, over := g.Seen("a", "m1")
			if over {
				break
			}
			require.Positive(t, pause)
			require.LessOrEqual(t, pause, maxPause)
			time.Sleep(pause) // virtual
		}
		require.Equal(t, 30*time.Second, time.Since(began))
		_, over := g.Seen("a", "m1")
		require.False(t, over, "it is counted anew once it was said")
	})
}

func TestAnotherEventIsAnotherGap(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		g := New(10 * time.Second)
		g.Seen("a", "m1")
		g.Seen("b", "m2")
		time.Sleep(9 * time.Second) // virtual
		g.Seen("a", "m3")
		g.Seen("b", "m2")
		time.Sleep(time.Second)
		_, over := g.Seen("a", "m3")
		require.False(t, over)
		_, over = g.Seen("b", "m2")
		require.True(t, over)
	})
}

// What was not looked at for long may have healed and come again, or somebody else had it.
func TestAnInterruptedWaitBeginsAnew(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		g := New(10 * time.Second)
		g.Seen("a", "m1")
		time.Sleep(time.Hour) // virtual
		_, over := g.Seen("a", "m1")
		require.False(t, over)
		g.Seen("b", "m2")
		time.Sleep(time.Hour)
		g.Seen("c", "m3")
		require.Len(t, g.waiting, 1, "what is not looked at any more is forgotten")
	})
}
