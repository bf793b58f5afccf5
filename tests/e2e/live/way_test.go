package live

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// way is how one instance of a service reaches one server: a TCP proxy that can be cut.
type way struct {
	to         string
	listener   net.Listener
	forwarding sync.WaitGroup

	mu      sync.Mutex
	through map[net.Conn]net.Conn // the instance's end by the server's; guarded by mu
	shut    bool                  // guarded by mu
	due     *int                  // bytes of the instance until a cut; nil while none is due; guarded by mu
	mute    bool                  // the server's next answer is lost, and a cut is due then; guarded by mu
}

// newWay forwards to a server until the test ends.
func newWay(t *testing.T, to string) *way {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &way{to: to, listener: l, through: map[net.Conn]net.Conn{}}
	w.forwarding.Go(w.run)
	t.Cleanup(func() {
		w.kill()
		_ = l.Close()
		w.forwarding.Wait()
	})
	return w
}

func (w *way) addr() string { return w.listener.Addr().String() }

// DialContext leads to the server, whatever address it is said to have.
func (w *way) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, w.addr())
}

func (w *way) run() {
	for {
		instance, err := w.listener.Accept()
		if err != nil {
			return // closed: the test ends
		}
		server, err := net.Dial("tcp", w.to)
		if err != nil || !w.connect(server, instance) {
			_ = instance.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		w.forwarding.Go(func() {
			defer w.disconnect(server)
			w.pump(server, instance, w.count)
		})
		w.forwarding.Go(func() {
			defer w.disconnect(server)
			w.pump(instance, server, w.answer)
		})
	}
}

// pump forwards until either end is closed. pass says how many bytes of those that were read go on, and whether everything is
// cut behind them.
func (w *way) pump(to, from net.Conn, pass func(n int) (passed int, cut bool)) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		passed, cut := pass(n)
		_, failed := to.Write(buffer[:passed])
		if cut {
			w.cut()
		}
		if failed != nil || err != nil || cut {
			return
		}
	}
}

// answer lets through what the server says, unless that is to be lost.
func (w *way) answer(n int) (passed int, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mute && n > 0 {
		return 0, true
	}
	return n, false
}

// count lets bytes of the instance through, up to the cut that is due.
func (w *way) count(n int) (passed int, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due == nil || *w.due > n {
		if w.due != nil {
			*w.due -= n
		}
		return n, false
	}
	return *w.due, true
}

func (w *way) connect(server, instance net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut {
		return false
	}
	w.through[server] = instance
	return true
}

func (w *way) disconnect(server net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if instance, there := w.through[server]; there {
		delete(w.through, server)
		_, _ = server.Close(), instance.Close()
	}
}

// cut cuts what goes through.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for server, instance := range w.through {
		_, _ = server.Close(), instance.Close()
	}
	clear(w.through)
	w.due, w.mute = nil, false
}

// cutAfter has every connection cut once the instance has sent n bytes more, the last of them in the middle of a message as
// likely as not. New connections are let through.
func (w *way) cutAfter(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = &n
}

// loseAnswer has every connection cut when the server next says something, which does not arrive: what the instance has asked for is done,
// and it cannot know.
func (w *way) loseAnswer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = true
}

// isCut says whether the cut that was due has been made.
func (w *way) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.due == nil && !w.mute
}

// kill cuts every connection and lets no other through.
func (w *way) kill() {
	w.mu.Lock()
	w.shut = true
	w.mu.Unlock()
	w.cut()
}
