package netpipe

import (
	"context"
	"net"
	"testing"
)

// Serve calls run, the Run method of an embedded server, with a listener in memory until the test
// ends. Clients that dial with the DialContext of the returned listener reach the server, in
// virtual time too.
func Serve(t testing.TB, run func(context.Context, net.Listener) error) *Listener {
	t.Helper()
	l := Listen(t.Name())
	serve(t, l, run)
	return l
}

// ServeTCP does what Serve does on a free port of the loopback interface, and returns its address
// as host:port.
func ServeTCP(t testing.TB, run func(context.Context, net.Listener) error) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen on a free port: %v", err)
	}
	serve(t, l, run)
	return l.Addr().String()
}

// serve joins the server when the test has ended: its clean-ups that were registered later have
// run, and may have used it.
func serve(t testing.TB, l net.Listener, run func(context.Context, net.Listener) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve %s: %v", l.Addr(), err)
		}
	})
}
