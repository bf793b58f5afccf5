package cable

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAPacketsFateIsDrawnFromTheSeed(t *testing.T) {
	t.Parallel()
	bad := Conditions{Delay: 100 * time.Millisecond, Loss: 0.02, Late: 0.25, LateBy: 30 * time.Millisecond}
	draw := func(seed uint64, n int) (fates []fate) {
		random := rand.New(rand.NewPCG(seed, 0))
		for range n {
			what, after := decide(bad, random)
			require.Equal(t, map[fate]time.Duration{passes: 100 * time.Millisecond, late: 130 * time.Millisecond, lost: 0}[what], after)
			fates = append(fates, what)
		}
		return fates
	}
	const many = 100_000
	share := map[fate]float64{}
	for _, f := range draw(1, many) {
		share[f] += 1.0 / many
	}
	require.InDelta(t, 0.02, share[lost], 0.002)
	require.InDelta(t, 0.98*0.25, share[late], 0.01)
	require.Zero(t, share[cut])
	require.Equal(t, draw(2, 1000), draw(2, 1000))
	require.NotEqual(t, draw(2, 1000), draw(3, 1000))
}

// packetTo returns an IPv4 packet that carries a number.
func packetTo(server netip.Addr, number byte) []byte {
	p := make([]byte, 21)
	p[0], p[20] = 0x45, number
	to := server.As4()
	copy(p[destination:], to[:])
	return p
}

// arrivals returns the numbers of the packets that are due by a time.
func arrivals(l *lane, by time.Time) (numbers []byte) {
	for {
		p, _ := l.next(by)
		if p == nil {
			return numbers
		}
		numbers = append(numbers, p[20])
	}
}

func TestPacketsArriveWhenTheyAreDueAndEachServerHasConditionsOfItsOwn(t *testing.T) {
	t.Parallel()
	near, far, gone := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("198.18.0.3")
	l := newLane(nil, nil, destination, 1)
	l.set(far, Conditions{Delay: 100 * time.Millisecond})
	l.set(gone, Conditions{Cut: true})
	start := time.Now()
	l.take(packetTo(far, 1), start)
	l.take(packetTo(near, 2), start)
	l.take(packetTo(gone, 3), start)
	l.take(packetTo(near, 4), start)
	l.take([]byte{0x60, 0}, start) // not IPv4
	l.take(packetTo(far, 5), start.Add(time.Millisecond))
	require.Equal(t, []byte{2, 4}, arrivals(l, start))
	_, wait := l.next(start.Add(40 * time.Millisecond))
	require.Equal(t, 60*time.Millisecond, wait)
	require.Equal(t, []byte{1, 5}, arrivals(l, start.Add(time.Second)))
	require.Equal(t, Counts{Passed: 4, Cut: 1}, l.count())
}

func TestAQueueThatIsFullLosesPackets(t *testing.T) {
	t.Parallel()
	server := netip.MustParseAddr("198.18.0.1")
	l := newLane(nil, nil, destination, 1)
	l.set(server, Conditions{Delay: time.Second})
	for range underWay + 3 {
		l.take(packetTo(server, 1), time.Now())
	}
	require.Equal(t, Counts{Passed: underWay, Lost: 3}, l.count())
}
