package leader

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// nth returns a fault for the nth request of one kind, counted from 1.
func nth(op string, n int64, fault func(context.Context, string) error) func(context.Context, string) error {
	var seen atomic.Int64
	return on(op, func(ctx context.Context, is string) error {
		if seen.Add(1) != n {
			return nil
		}
		return fault(ctx, is)
	})
}

// A heartbeat whose response is late is sent again, and that is refused, because the first one took
// effect. The read that shows this may be slow as well: it is hedged like a write.
func TestASlowReadAfterALateResponseCostsNoLeadership(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		<-h.begun
		time.Sleep(5500 * time.Millisecond) // virtual
		a.view.set(nth("read", 1, hang), nth("write", 1, hang))
		time.Sleep(10 * time.Second) // virtual
		require.Empty(t, h.finished)
		a.view.set(nil, nil)
		a.leave(t)
		require.EqualValues(t, 1, m.record.Epoch)
	})
}

// No matter how long a read takes, the late response itself still counts.
func TestALateResponseCountsDuringARead(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		<-h.begun
		time.Sleep(5500 * time.Millisecond) // virtual
		late := func(context.Context, string) error {
			time.Sleep(2 * time.Second) // virtual: half a fence
			return nil
		}
		a.view.set(on("read", hang), nth("write", 1, late))
		time.Sleep(10 * time.Second) // virtual
		require.Empty(t, h.finished)
		a.view.set(nil, nil)
		a.leave(t)
		require.EqualValues(t, 1, m.record.Epoch)
	})
}

// A write of an earlier heartbeat that arrives between two of this one changes the record: the read
// shows that, and the heartbeat continues from there.
func TestAnEarlierHeartbeatThatArrivesLateIsNoRival(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		<-h.begun
		time.Sleep(5500 * time.Millisecond) // virtual
		m.mu.Lock()
		earlier, before := m.record, len(m.writes)
		earlier.HeartbeatAt = earlier.HeartbeatAt.Add(time.Millisecond)
		m.record, m.version = earlier, m.version+1
		m.mu.Unlock()
		time.Sleep(10 * time.Second) // virtual
		require.Empty(t, h.finished)
		a.leave(t)
		require.EqualValues(t, 1, m.record.Epoch)
		require.Len(t, m.writes, before+11, "one heartbeat a second, and the last")
	})
}
