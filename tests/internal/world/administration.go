package world

import (
	"context"
	"net"
	"sync"

	"github.com/stretchr/testify/require"
)

// ServeAdministration serves the administration of the world's Service Bus, which needs real time, and gives its URL.
func (w *World) ServeAdministration() (url string) {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	var serving sync.WaitGroup
	serving.Go(func() { _ = w.Bus.RunManagement(ctx, l) })
	w.Cleanup(func() {
		stop()
		serving.Wait()
	})
	return "http://" + l.Addr().String()
}
