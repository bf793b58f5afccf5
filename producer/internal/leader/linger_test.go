package leader

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// Work that continues after its term is lost is reported, so that the platform can restart the
// process.
func TestTheLingeringWorkOfALostTermIsReported(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		m := &memory{}
		v := m.view()
		ctx, stop := context.WithCancel(t.Context())
		begun, end, done := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
		e := New(testConfig("a"), v, v, slog.New(slog.DiscardHandler))
		go func() {
			done <- e.Run(ctx, func(ctx context.Context, _ *Term) error {
				begun <- struct{}{}
				<-ctx.Done()
				<-end // a send that ignores its context
				return nil
			})
		}()
		<-begun
		require.Zero(t, e.Ending())
		v.set(away, nil)
		time.Sleep(time.Minute) // virtual
		lingers := time.Since(e.Ending())
		require.Greater(t, lingers, 50*time.Second)
		require.LessOrEqual(t, lingers, time.Minute)
		stop()
		close(end)
		require.NoError(t, <-done)
		require.Zero(t, e.Ending())
	})
}
