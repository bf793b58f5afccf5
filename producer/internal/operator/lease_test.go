package operator

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// overtaken is a store whose objects another client always writes first.
type overtaken struct{ *storetest.Memory }

func (overtaken) Put(context.Context, string, []byte, store.Tag) (store.Tag, error) {
	return "", store.ErrChanged
}

// A lease that is not broken, because its leader was faster each time, is not reported as broken.
func TestALeaseIsReportedAsBrokenOnlyIfItIs(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var memory storetest.Memory
		c := checkpoint.New(&memory, "shop.orders")
		require.NoError(t, c.Create(t.Context(), checkpoint.Record{Stream: "shop.orders", Leader: "a", Epoch: 1}))
		created, err := c.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.Acquire(t.Context(), "lease", 15*time.Second, created.Tag))
		s := &Stream{
			Name: "shop.orders", Out: io.Discard,
			Open: func(stream string) *checkpoint.Checkpoint { return checkpoint.New(overtaken{&memory}, stream) },
		}
		require.ErrorIs(t, s.BreakLease(t.Context()), checkpoint.ErrChanged)
		s.Open = func(stream string) *checkpoint.Checkpoint { return checkpoint.New(&memory, stream) }
		require.NoError(t, s.BreakLease(t.Context()))
		free, err := c.Read(t.Context())
		require.NoError(t, err)
		require.False(t, free.Leased)
	})
}
