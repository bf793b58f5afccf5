package leader

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// The marker exists before anything can have been published: a replica that cannot write it does
// not lead.
func TestG6NoReplicaLeadsAStreamThatCannotBeMarked(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		v := m.view()
		v.set(on("mark", away), nil)
		a := run(t, v, testConfig("a"), h.work("a"))
		time.Sleep(30 * time.Second) // virtual
		virtualtime.Wait()           // an attempt that began at this very moment is over
		m.mu.Lock()
		writes, leased := m.writes, m.leased()
		m.mu.Unlock() // a failing check must not keep the lock
		require.Empty(t, writes)
		require.False(t, leased, "the lease is given back each time")
		a.leave(t)
	})
}
