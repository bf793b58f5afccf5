package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/store/storetest"
)

const stream = "shop.events"

// created returns the checkpoints of two clients of a new stream.
func created(t *testing.T) (a, b *Checkpoint, memory *storetest.Memory) {
	t.Helper()
	memory = &storetest.Memory{}
	a, b = New(memory, stream), New(memory, stream)
	require.NoError(t, a.Create(t.Context(), Record{Stream: stream}))
	return a, b, memory
}

// A leader's first write has the tag from before it acquired the lease.
func TestOnlyWritesChangeTheTag(t *testing.T) {
	a, b, _ := created(t)
	ctx := t.Context()
	first, err := a.Read(ctx)
	require.NoError(t, err)
	require.False(t, first.Leased)
	require.NoError(t, a.Acquire(ctx, "a", 0, first.Tag))
	leased, err := b.Read(ctx)
	require.NoError(t, err)
	require.True(t, leased.Leased)
	require.Equal(t, first.Tag, leased.Tag)
	written, err := a.Write(ctx, Record{Stream: stream, Epoch: 1}, "a", first.Tag)
	require.NoError(t, err)
	require.NotEqual(t, first.Tag, written)
	require.NoError(t, a.Release(ctx, "a"))
	free, err := b.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, written, free.Tag)
	require.False(t, free.Leased)
}

func TestG4AWriteNeedsTheLeaseAndTheTag(t *testing.T) {
	a, b, _ := created(t)
	ctx := t.Context()
	first, err := a.Read(ctx)
	require.NoError(t, err)
	require.NoError(t, a.Acquire(ctx, "a", 0, first.Tag))
	require.NoError(t, a.Acquire(ctx, "a", 0, first.Tag), "an earlier request whose response was lost")
	require.ErrorIs(t, b.Acquire(ctx, "b", 0, first.Tag), ErrLeaseHeld)
	_, err = b.Write(ctx, Record{Stream: stream}, "b", first.Tag)
	require.ErrorIs(t, err, ErrLeaseLost)
	second, err := a.Write(ctx, Record{Stream: stream, Epoch: 1}, "a", first.Tag)
	require.NoError(t, err)
	_, err = a.Write(ctx, Record{Stream: stream, Epoch: 1}, "a", first.Tag)
	require.ErrorIs(t, err, ErrChanged, "the same heartbeat again")
	require.ErrorIs(t, b.Break(ctx, first.Tag), ErrChanged, "the holder has written meanwhile")
	require.NoError(t, b.Break(ctx, second))
	require.NoError(t, b.Acquire(ctx, "b", 0, second))
	_, err = a.Write(ctx, Record{Stream: stream, Epoch: 1}, "a", second)
	require.ErrorIs(t, err, ErrLeaseLost)
	require.ErrorIs(t, a.Release(ctx, "a"), ErrLeaseLost)
	_, err = b.Write(ctx, Record{Stream: stream, Epoch: 2}, "b", second)
	require.NoError(t, err)
}

// The record and its marker may be lost together.
func TestG4TheEpochNeverGoesBack(t *testing.T) {
	a, _, memory := created(t)
	ctx := t.Context()
	began := time.Now().Unix()
	first, err := a.NextEpoch(ctx, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, first, began)
	second, err := a.NextEpoch(ctx, 0) // the record lost what the first leader wrote
	require.NoError(t, err)
	require.Greater(t, second, first)
	far, err := a.NextEpoch(ctx, second+1000)
	require.NoError(t, err)
	require.Equal(t, second+1001, far)

	require.NoError(t, memory.Delete(ctx, stream+recordSuffix))
	require.ErrorIs(t, a.Create(ctx, Record{Stream: stream}), ErrGone)
	require.NoError(t, memory.Delete(ctx, stream+markSuffix))
	require.NoError(t, a.Create(ctx, Record{Stream: stream}))
	afresh, err := a.NextEpoch(ctx, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, afresh, began)
}
