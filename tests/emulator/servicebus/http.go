package servicebus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/atomapi"
)

const handshakeTimeout = 10 * time.Second

// RunManagement serves the HTTP administration, GET /health and AMQP over WebSockets on l until ctx
// ends or l fails, without TLS. On return l and all connections are closed. It returns nil when ctx
// ended.
//
// The SDKs' administration clients insist on https: give them a transport that rewrites the scheme,
// or use RunTLS.
func (s *Server) RunManagement(ctx context.Context, l net.Listener) error {
	return s.runHTTP(ctx, l)
}

// RunTLS serves AMQP and the administration behind TLS on one port: the first bytes of a client
// determine the protocol. On return l and all connections are closed and every goroutine is joined.
// It returns nil if ctx ended.
func (s *Server) RunTLS(ctx context.Context, l net.Listener, cfg *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	web := &handed{addr: l.Addr(), conns: make(chan net.Conn), done: ctx.Done()}
	wg.Go(func() {
		if err := s.runHTTP(ctx, web); err != nil {
			s.log.Error("management ended", "error", err)
		}
	})
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept connection: %w", err)
		}
		wg.Go(func() { s.serveTLS(ctx, tls.Server(c, cfg), web) })
	}
}

// serveTLS reads the first bytes, which are "AMQP" or an HTTP method.
func (s *Server) serveTLS(ctx context.Context, c *tls.Conn, web *handed) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	first := make([]byte, 4)
	for n := 0; n < len(first); {
		m, err := c.Read(first[n:])
		if err != nil {
			s.log.Debug("TLS connection ended", "error", err)
			_ = c.Close()
			return
		}
		n += m
	}
	_ = c.SetDeadline(time.Time{})
	pc := &prefixed{Conn: c, prefix: first}
	if string(first) != "AMQP" {
		web.hand(pc)
		return
	}
	if err := s.ServeConn(ctx, pc); err != nil {
		s.log.Debug("connection ended", "error", err)
	}
}

func (s *Server) runHTTP(ctx context.Context, l net.Listener) error {
	var handlers joined
	defer handlers.wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before the wait above
	api := s.api.Handler(s.authorizeHTTP)
	h := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !handlers.enter() {
				return
			}
			defer handlers.wg.Done()
			if strings.EqualFold(strings.TrimRight(r.URL.Path, "/"), websocketPath) {
				s.upgrade(ctx, w, r)
				return
			}
			s.credits.owe(creditsOfAdministration)
			api.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: handshakeTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	if err := h.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("serve management: %w", err)
	}
	return nil
}

// authorizeHTTP checks the Authorization header as $cbs checks tokens.
func (s *Server) authorizeHTTP(r *http.Request) (manage bool, err error) {
	token := r.Header.Get("Authorization")
	if token != "" && !strings.HasPrefix(token, "SharedAccessSignature ") {
		return true, nil // a JWT, with or without "Bearer": there is no authority to check it against
	}
	g, problem := s.checkSignature(token, "https://"+r.Host+r.URL.Path)
	if problem != "" {
		return false, errors.New(problem)
	}
	return g.rights&Manage != 0, nil
}

var _ atomapi.Authorize = (*Server)(nil).authorizeHTTP

// joined waits for handlers, which an http.Server does not when it is closed.
type joined struct {
	mu     sync.Mutex
	wg     sync.WaitGroup
	closed bool
}

func (j *joined) enter() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.wg.Add(1)
	}
	return !j.closed
}

func (j *joined) wait() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.wg.Wait()
}

// prefixed is a connection of which some bytes were read already.
type prefixed struct {
	net.Conn
	prefix []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) > 0 {
		n := copy(b, p.prefix)
		p.prefix = p.prefix[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// handed is a listener of connections that were accepted elsewhere.
type handed struct {
	addr  net.Addr
	conns chan net.Conn
	done  <-chan struct{}
}

func (h *handed) hand(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		c.Close()
	}
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error   { return nil }
func (h *handed) Addr() net.Addr { return h.addr }
