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
func nth(op string, n int64, do fault) fault {
	var seen atomic.Int64
	return on(op, func(ctx context.Context, is string) error {
		if seen.Add(1) != n {
			return nil
		}
		return do(ctx, is)
	})
}

// keepsLeading requires that a leader keeps its term, whatever disturb does in the middle between
// two heartbeats.
func keepsLeading(t *testing.T, disturb func(m *memory, a *view)) {
	t.Helper()
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		<-h.begun
		time.Sleep(5500 * time.Millisecond) // virtual
		disturb(m, a.view)
		time.Sleep(10 * time.Second) // virtual
		require.Empty(t, h.finished)
		a.view.set(nil, nil)
		a.leave(t)
		require.EqualValues(t, 1, m.record.Epoch)
	})
}

// A heartbeat whose response is late is sent again, and that is refused, because the first one took
// effect. The read that shows this may be slow as well: it is hedged like a write.
func TestASlowReadAfterALateResponseCostsNoLeadership(t *testing.T) {
	keepsLeading(t, func(_ *memory, a *view) { a.set(nth("read", 1, hang), nth("write", 1, hang)) })
}

// No matter how long a read takes, the late response itself still counts.
func TestALateResponseCountsDuringARead(t *testing.T) {
	late := func(context.Context, string) error {
		time.Sleep(2 * time.Second) // virtual: half a fence
		return nil
	}
	keepsLeading(t, func(_ *memory, a *view) { a.set(on("read", hang), nth("write", 1, late)) })
}

// A write of an earlier heartbeat that arrives between two of this one changes the record: the read
// shows that, and the heartbeat continues from there.
func TestAnEarlierHeartbeatThatArrivesLateIsNoRival(t *testing.T) {
	var there *memory
	before := 0
	keepsLeading(t, func(m *memory, _ *view) {
		m.mu.Lock()
		defer m.mu.Unlock()
		earlier := m.record
		earlier.HeartbeatAt = earlier.HeartbeatAt.Add(time.Millisecond)
		m.record, m.version = earlier, m.version+1
		there, before = m, len(m.writes)
	})
	require.Len(t, there.writes, before+11, "one heartbeat a second, and the last")
}
