package world

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// ServeAdministration serves the administration of the world's Service Bus, which needs real time,
// and returns its URL.
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

// Administered serves the administration in memory, which works in virtual time too, and returns
// the options of its clients.
func (w *World) Administered() *azcore.ClientOptions {
	w.Helper()
	l := netpipe.Serve(w.T, w.Bus.RunManagement)
	return &azcore.ClientOptions{Transport: inMemory{&http.Transport{
		DialContext: l.DialContext, DisableKeepAlives: true,
	}}}
}

// inMemory is a transport to a server of plain HTTP.
type inMemory struct{ *http.Transport }

func (m inMemory) Do(r *http.Request) (*http.Response, error) {
	r.URL.Scheme = "http"
	return m.RoundTrip(r)
}
