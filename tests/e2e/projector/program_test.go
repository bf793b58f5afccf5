package projector_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/projector/projection/serve"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// program is a projection that runs behind HTTP, in the same bubble.
type program struct {
	w        *world.World
	mu       sync.Mutex
	listener *netpipe.Listener // guarded by mu; nil while the program is not running
	server   *http.Server      // guarded by mu
	handler  http.Handler      // guarded by mu
	calls    int               // of POST /project; guarded by mu
	ended    bool              // it does not run again; guarded by mu
	serving  sync.WaitGroup
}

const programHost = "127.0.0.1:8088"

// startProgram serves a projection until the test ends.
func startProgram(w *world.World, p projection.Projection) *program {
	w.Helper()
	g := &program{w: w}
	g.start(g.serves(p))
	return g
}

func (g *program) serves(p projection.Projection) http.Handler {
	g.w.Helper()
	handler, err := serve.Handler(p)
	require.NoError(g.w, err)
	return handler
}

func (g *program) start(handler http.Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listener, g.handler = netpipe.Listen(programHost), handler
	server := &http.Server{Handler: g}
	g.server = server
	listener := g.listener
	g.serving.Go(func() { _ = server.Serve(listener) })
}

// ServeHTTP counts calls.
func (g *program) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	handler := g.handler
	if r.Method == http.MethodPost {
		g.calls++
	}
	g.mu.Unlock()
	handler.ServeHTTP(w, r)
}

// posted returns the number of calls with events.
func (g *program) posted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

// stop ends the program, as if it were killed.
func (g *program) stop() {
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

// end ends the program for good.
func (g *program) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.stop()
}

// replace has another handler answer, or stops the program if that is nil, and returns the one
// before.
func (g *program) replace(handler http.Handler) (before http.Handler) {
	g.mu.Lock()
	before = g.handler
	running := g.listener != nil
	if handler != nil {
		g.handler = handler
	}
	g.mu.Unlock()
	switch {
	case handler == nil:
		g.stop()
	case !running:
		g.start(handler)
	}
	return before
}

func (g *program) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	g.mu.Lock()
	listener := g.listener
	g.mu.Unlock()
	if listener == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return listener.DialContext(ctx, network, address)
}

// runs has a projector run the program, as the projection of that name.
func (g *program) runs(name string) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		c.Projection, c.ProjectionURL, c.ProjectionTimeout = name, "http://"+programHost, 10*time.Second
		o.ProjectionDial = g.DialContext
	}
}

// G1, G3: a projection behind HTTP makes the same read model as the same one in the projector, byte
// by byte, with one call for the events that a session has.
func TestAProgramMakesTheSameReadModel(t *testing.T) {
	for _, p := range []projection.Projection{projection.Timeline{}, projection.Mirror{}} {
		t.Run(p.Name(), func(t *testing.T) {
			made := make(map[bool]string)
			for _, remote := range []bool{false, true} {
				inVirtualTime(t, func(w *world.World) {
					g := startProgram(w, p)
					defer g.end()
					settings := g.runs(p.Name())
					if !remote {
						settings = func(c *projector.Config, _ *projector.Options) { c.Projection = p.Name() }
					}
					publish(w, event("a", 1, "OrderPlaced"), event("a", 2, "U.v1"), event("a", 3, "OrderPaid"), event("b", 1, "OrderPlaced"))
					running := w.StartProjector(settings)
					w.Completed(4)
					made[remote] = contents(w, p)
					counted, err := running.End()
					require.NoError(w, err)
					require.Equal(w, 4, counted.Applied)
					if remote {
						require.Equal(w, 2, g.posted(), "one call for each session")
					}
				})
			}
			require.NotEmpty(t, made[true])
			require.Equal(t, made[false], made[true])
		})
	}
}

// contents returns the documents of a projection's collections, in the order of their ids.
func contents(w *world.World, p projection.Projection) (all string) {
	w.Helper()
	collections, _ := projection.Collections(p)
	for _, c := range collections {
		cursor, err := w.Client.Database(world.ReadModel).Collection(c.Name).Find(w.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		require.NoError(w, err)
		for cursor.Next(w.Context()) {
			all += c.Name + " " + cursor.Current.String() + "\n"
		}
		require.NoError(w, cursor.Err())
	}
	return all
}
