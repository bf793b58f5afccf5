package leader

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// G6: a checkpoint that is deleted is not recreated by a process that has never read it: the marker
// shows that the stream has had a leader.
func TestG6ADeletedCheckpointIsNotRecreatedAfterARestart(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m, h := &memory{}, newHistory()
		a := join(t, m, h, testConfig("a"))
		<-h.begun
		a.leave(t)
		require.True(t, m.marked)
		m.mu.Lock()
		m.exists = false
		m.mu.Unlock()
		b := join(t, m, h, testConfig("b"))
		require.ErrorIs(t, <-b.done, checkpoint.ErrGone)
		require.False(t, m.exists)
	})
}

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
