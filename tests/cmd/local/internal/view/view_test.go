package view

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func snapshot() Snapshot {
	return Snapshot{
		Elapsed: 2500 * time.Millisecond, Leader: "producer-1", Epoch: 3, Standbys: []string{"producer-2-r1"},
		Inserted: 250, Total: 1000, Published: 240, Applied: 200, Rate: 99.6, Sessions: 63, Projector: 1,
	}
}

func TestBlock(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"",
		"  leader     producer-1, epoch 3",
		"  standby    producer-2-r1",
		"  inserted   250      [=======                       ]",
		"  published  240      [=======                       ]",
		"  applied    200      [======                        ] 100/s",
		"  lag        50       sessions 63 on 1 projector, parked 0, dead-lettered 0",
		"  time       2.5s",
	}, Block(snapshot(), 80))
}

func TestBlockWithoutALeaderAnEndOrABroker(t *testing.T) {
	t.Parallel()
	s := snapshot()
	s.Leader, s.Total, s.Published, s.Dead, s.Standbys = "", 0, -1, -1, nil
	text := strings.Join(Block(s, 80), "\n")
	require.Contains(t, text, "none, waiting for the next one")
	require.Contains(t, text, "standby    none")
	require.Contains(t, text, "published  unknown")
	require.NotContains(t, text, "[")
}

func TestLinesNeverWrap(t *testing.T) {
	t.Parallel()
	s := snapshot()
	for range 20 {
		s.Standbys = append(s.Standbys, "producer-2-r1")
	}
	for _, columns := range []int{1, 20, 40, 80, 200} {
		for _, line := range Block(s, columns) {
			require.Less(t, utf8.RuneCountInString(line), columns+1)
		}
	}
	narrow := strings.Join(Block(s, 40), "\n")
	for _, line := range []string{"  lag        50", "  sessions   63 on 1 projector", "  parked     0", "  dead       0"} {
		require.Contains(t, narrow, line+"\n")
	}
}

func TestATerminalIsRefreshedInPlaceAndEventsStayAbove(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := &Live{w: &b, terminal: true, columns: func() int { return 80 }}
	l.Show(snapshot())
	l.Event(2*time.Second, "kill-leader: SIGKILL to producer-1")
	l.Show(snapshot())
	l.Clear()
	block := strings.Join(Block(snapshot(), 80), "\n") + "\n"
	up := "\x1b[8A\x1b[J"
	require.Equal(t, block+up+"    2.5s  kill-leader: SIGKILL to producer-1\n"+block+up, b.String())
}

func TestElsewhereThereArePlainLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := New(&b, false, func() {})
	require.Equal(t, plainEvery, l.Every())
	l.Show(snapshot())
	l.Event(3*time.Second, "blob-503 is over")
	l.Clear()
	require.Equal(t, "    2.5s  producer-1 leads (epoch 3), 1 standing by; inserted 250, published 240, applied 200, lag 50; "+
		"sessions 63, parked 0, dead-lettered 0\n    3.0s  blob-503 is over\n", b.String())
}

func TestQuietSaysNothing(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := New(&b, true, func() {})
	require.Zero(t, l.Every())
	l.Show(snapshot())
	l.Event(0, "x")
	l.Clear()
	require.Empty(t, b.String())
}

// The clock begins with the first insert, however long the services took to be built, and then
// never stands still or jumps back.
func TestTheClockNeverJumpsBack(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	live := New(&out, false, func() {})
	live.Event(Preparing, "building the services")
	live.Show(Snapshot{Elapsed: Preparing})
	live.Event(500*time.Millisecond, "the first event")
	live.Event(400*time.Millisecond, "at the same time")
	live.Show(Snapshot{Elapsed: time.Second})
	live.Event(4*time.Second, "later")
	require.Equal(t, []string{"b", "n", "0.5s", "0.5s", "1.0s", "4.0s"}, regexp.MustCompile(`(?m)^(\d+\.\ds|[a-z])`).FindAllString(strings.ReplaceAll(out.String(), " ", ""), -1))
}
