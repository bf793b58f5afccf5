package virtualtime

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const still = `goroutine 1 [chan receive, 2 minutes]:
testing.(*T).Run(0x1)

goroutine 8 [synctest.Run (durable), synctest bubble 3]:
internal/synctest.Run(0x1)

goroutine 9 [sync.Mutex.Lock, synctest bubble 3]:
sync.(*Mutex).lockSlow(0x2)

goroutine 12 [IO wait, locked to thread, synctest bubble 31]:
internal/poll.runtime_pollWait(0x3)
`

// The differences between stacks that show a move, and those that do not.
func TestABubbleThatMovesHasOtherStacks(t *testing.T) {
	before := survey([]byte(still))
	require.Len(t, before, 2)
	require.False(t, before[3].moves)
	require.False(t, before[31].moves)
	for change, c := range map[string]struct {
		old, new string
		same     bool // as before, in bubble 3
		moves    bool
	}{
		"the waits grow long":               {"Mutex.Lock,", "Mutex.Lock, 3 minutes,", true, false},
		"the collector looks at one":        {"Mutex.Lock,", "Mutex.Lock (scan),", true, false},
		"one has labels":                    {"bubble 3]:\nsync", "bubble 3 labels:{\"a\": \"synctest bubble 5\"}]:\nsync", false, false},
		"one outside moves":                 {"goroutine 1 [chan receive", "goroutine 1 [runnable", true, false},
		"another bubble moves":              {"IO wait", "runnable", true, false},
		"one is somewhere else":             {"lockSlow(0x2)", "lockSlow(0x4)", false, false},
		"one waits for something else":      {"sync.Mutex.Lock,", "sync.RWMutex.Lock,", false, false},
		"one is another one":                {"goroutine 9", "goroutine 10", false, false},
		"one could run":                     {"sync.Mutex.Lock,", "runnable,", false, true},
		"one could run, and has for a time": {"sync.Mutex.Lock,", "runnable (scan), 5 minutes,", false, true},
		"one runs":                          {"sync.Mutex.Lock,", "running,", false, true},
	} {
		require.Contains(t, still, c.old, change)
		after := survey([]byte(strings.Replace(still, c.old, c.new, 1)))
		require.Len(t, after, 2, change)
		require.Equal(t, c.same, before[3].print.Sum64() == after[3].print.Sum64(), change)
		require.Equal(t, c.moves, after[3].moves, change)
	}
}

func TestABubblesStacksAreDivided(t *testing.T) {
	awake, waiting := divide([]byte(still), 3)
	require.Equal(t, []string{"goroutine 9 [sync.Mutex.Lock, synctest bubble 3]:\nsync.(*Mutex).lockSlow(0x2)"}, awake)
	require.Equal(t, []string{"goroutine 8 [synctest.Run (durable), synctest bubble 3]:\ninternal/synctest.Run(0x1)"}, waiting)
	awake, waiting = divide([]byte(still), 31)
	require.Len(t, awake, 1)
	require.Empty(t, waiting)
}

// Without a bubble the watcher does nothing and keeps nothing.
func TestWithoutABubbleThereIsNoWatcher(t *testing.T) {
	var w watcher
	a, b := &bubble{}, &bubble{}
	w.add(a)
	w.add(b)
	w.remove(a)
	require.True(t, w.timer.Stop(), "b runs")
	w.timer.Reset(time.Hour)
	w.remove(b)
	require.False(t, w.timer.Stop(), "none runs")
}

// The dump is whole, however small the buffer was, and a buffer that is large enough is used again.
func TestADumpIsWhole(t *testing.T) {
	for range 2000 {
		done := make(chan bool)
		t.Cleanup(func() { close(done) })
		go func() { <-done }()
	}
	dump := allStacks(make([]byte, 10))
	require.Equal(t, 2000, strings.Count(string(dump), "TestADumpIsWhole.func2()"))
	require.Same(t, &dump[0], &allStacks(dump)[0])
}
