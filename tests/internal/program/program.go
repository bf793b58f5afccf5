// Package program runs a projection behind HTTP, over connections in memory, so that it can be in a
// bubble of virtual time.
package program

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// Program is a projection that runs behind HTTP, in the same bubble.
type Program struct {
	mu       sync.Mutex
	listener *netpipe.Listener // guarded by mu; nil while the program is not running
	server   *http.Server      // guarded by mu
	handler  http.Handler      // guarded by mu
	calls    int               // of POST /project; guarded by mu
	ended    bool              // it does not run again; guarded by mu
	serving  sync.WaitGroup
}

const host = "127.0.0.1:8088"

// Start has a handler answer, unless the program runs or has ended for good.
func (g *Program) Start(handler http.Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener != nil || g.ended {
		return // it ended twice at once
	}
	g.listener, g.handler = netpipe.Listen(host), handler
	server := &http.Server{Handler: g}
	g.server = server
	listener := g.listener
	g.serving.Go(func() { _ = server.Serve(listener) })
}

// ServeHTTP counts calls.
func (g *Program) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	handler := g.handler
	if r.Method == http.MethodPost {
		g.calls++
	}
	g.mu.Unlock()
	handler.ServeHTTP(w, r)
}

// AnswerDamaged answers a request twice in one response, or with half of a response.
func AnswerDamaged(w http.ResponseWriter, r *http.Request, code http.Handler, twice bool) {
	recorded := httptest.NewRecorder()
	code.ServeHTTP(recorded, r)
	answer := recorded.Body.Bytes()
	if twice {
		answer = append(answer, answer...)
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		answer = answer[:len(answer)/2]
	}
	_, _ = w.Write(answer)
}

// Posted returns the number of calls with events.
func (g *Program) Posted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

// Stop ends the program, as if it were killed.
func (g *Program) Stop() {
	g.mu.Lock()
	server, listener := g.server, g.listener
	g.server, g.listener = nil, nil
	g.mu.Unlock()
	if server != nil {
		_ = server.Close()
		_ = listener.Close()
		g.serving.Wait()
	}
}

// End ends the program for good.
func (g *Program) End() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.Stop()
}

// Replace has another handler answer, or stops the program if that is nil, and returns the one
// before.
func (g *Program) Replace(handler http.Handler) (before http.Handler) {
	g.mu.Lock()
	before = g.handler
	running := g.listener != nil
	if handler != nil {
		g.handler = handler
	}
	g.mu.Unlock()
	switch {
	case handler == nil:
		g.Stop()
	case !running:
		g.Start(handler)
	}
	return before
}

// DialContext connects to the program.
func (g *Program) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	g.mu.Lock()
	listener := g.listener
	g.mu.Unlock()
	if listener == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return listener.DialContext(ctx, network, address)
}

// Runs makes a projector run the program, as the projection of that name.
func (g *Program) Runs(name string) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		c.Projection, c.ProjectionURL, c.ProjectionTimeout = name, "http://"+host, 10*time.Second
		o.ProjectionDial = g.DialContext
	}
}

// Restart is how long the platform takes to start the program again.
const Restart = 2 * time.Second

// Die ends the program, as if an event had killed it; after [Restart] it runs again.
func (g *Program) Die() {
	g.Stop()
	time.Sleep(Restart)
	g.mu.Lock()
	handler := g.handler
	g.mu.Unlock()
	g.Start(handler)
}
