package world

import (
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// ServeAdministration serves the administration of the world's Service Bus, which needs real time,
// and returns its URL.
func (w *World) ServeAdministration() (url string) {
	w.Helper()
	return "http://" + netpipe.ServeTCP(w.T, w.Bus.RunManagement)
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
