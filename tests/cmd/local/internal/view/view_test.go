package view

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/console"
)

func snapshot() console.View {
	return console.View{
		Streams: []console.Stream{{
			Leader: "producer-1", Epoch: 3, Replicas: []console.Replica{{Name: "producer-1", Role: "leader"}, {Name: "producer-2-r1", Role: "standby"}},
			Published: new(int64(240)), InFlight: new(int64(12)), FenceMarginMS: new(int64(2140)), FenceAfterMS: new(int64(2500)),
		}},
		Queue: &console.Queue{DeadLettered: map[string]int64{}},
		Projections: []console.Projection{{
			Replicas: []string{"projector-1"}, SessionsHeld: new(int64(63)), Parked: new(int64(0)), P50MS: new(1.92), P99MS: new(5.31),
		}},
		Run: &console.Run{Elapsed: 2500 * time.Millisecond, Inserted: 250, Total: 1000, Applied: 200},
	}
}

func TestBlock(t *testing.T) {
	t.Parallel()
	v := snapshot()
	require.Equal(t, []string{
		"",
		"  leader     producer-1, epoch 3",
		"  fence      2.1 of 2.5 s left",
		"  standby    producer-2-r1",
		"  inserted   250      [=======                       ]",
		"  published  240      [=======                       ] 12 in flight",
		"  applied    200      [======                        ] 100/s",
		"  latency    p50 1.9 ms, p99 5.3 ms",
		"  lag        50       sessions 63 on 1 projector, parked 0, dead-lettered 0",
		"  time       2.5s",
	}, Block(v, 99.6, 80))
	v.Run.Failovers = []console.Failover{{Kind: "kill-leader", PublishAfterMS: 1000}, {Kind: "lose-leader", PublishAfterMS: 2950}}
	v.Run.Waiting = "a1 is parked: replay it"
	require.Equal(t, []string{
		"  failover   lose-leader: 3.0 s until the next leader published",
		"  waits      a1 is parked: replay it",
		"  time       2.5s",
	}, Block(v, 99.6, 80)[9:])
}

func TestBlockWithoutALeaderAnEndOrABroker(t *testing.T) {
	t.Parallel()
	v := console.View{Run: &console.Run{Inserted: 250, Followed: true}}
	text := strings.Join(Block(v, 0, 100), "\n")
	require.Contains(t, text, "none, waiting for the next one")
	require.Contains(t, text, "standby    none")
	require.Contains(t, text, "seen       250")
	require.Contains(t, text, "published  unknown")
	require.Contains(t, text, "parked unknown, dead-lettered unknown")
	require.NotContains(t, text, "[")
}

func TestLinesNeverWrap(t *testing.T) {
	t.Parallel()
	v := snapshot()
	for range 20 {
		v.Streams[0].Replicas = append(v.Streams[0].Replicas, console.Replica{Name: "producer-2-r1", Role: "standby"})
	}
	for _, columns := range []int{1, 20, 40, 80, 200} {
		for _, line := range Block(v, 99.6, columns) {
			require.Less(t, utf8.RuneCountInString(line), columns+1)
		}
	}
	narrow := strings.Join(Block(v, 99.6, 40), "\n")
	for _, line := range []string{"  lag        50", "  sessions   63 on 1 projector", "  parked     0", "  dead       0"} {
		require.Contains(t, narrow, line+"\n")
	}
}

func TestATerminalIsRefreshedInPlaceAndEventsStayAbove(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := &Live{w: &b, terminal: true, columns: func() int { return 80 }}
	l.Show(snapshot(), 99.6)
	l.Event(2*time.Second, "kill-leader: SIGKILL to producer-1")
	l.Show(snapshot(), 99.6)
	l.Clear()
	block := strings.Join(Block(snapshot(), 99.6, 80), "\n") + "\n"
	up := "\x1b[10A\x1b[J"
	require.Equal(t, block+up+"    2.5s  kill-leader: SIGKILL to producer-1\n"+block+up, b.String())
}

func TestWithoutATerminalThereArePlainLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := New(&b, false, func() {})
	require.Equal(t, plainEvery, l.Every())
	l.Show(snapshot(), 99.6)
	l.Event(3*time.Second, "blob-503 is over")
	l.Clear()
	require.Equal(t, "    2.5s  producer-1 leads (epoch 3), 1 standing by; inserted 250, published 240, applied 200, lag 50; "+
		"sessions 63, parked 0, dead-lettered 0\n    3.0s  blob-503 is over\n", b.String())
}

func TestQuietPrintsNothing(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := New(&b, true, func() {})
	require.Zero(t, l.Every())
	l.Show(snapshot(), 99.6)
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
	live.Show(console.View{Run: &console.Run{Elapsed: Preparing}}, 0)
	live.Event(500*time.Millisecond, "the first event")
	live.Event(400*time.Millisecond, "at the same time")
	live.Show(console.View{Run: &console.Run{Elapsed: time.Second}}, 0)
	live.Event(4*time.Second, "later")
	require.Equal(t, []string{"b", "n", "0.5s", "0.5s", "1.0s", "4.0s"}, regexp.MustCompile(`(?m)^(\d+\.\ds|[a-z])`).FindAllString(strings.ReplaceAll(out.String(), " ", ""), -1))
}
