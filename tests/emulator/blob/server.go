// Package blob is an Azure Blob service in this process: the REST protocol of block blobs,
// conditional headers and leases, for the unmodified azblob SDK.
//
// Guaranteed: the guarantees of package state for blobs and leases; shared-key signatures are
// verified; a request that this server does not know, or that has a header or parameter that it
// does not know, is refused with an error that names it.
//
// Not provided: everything that package state does not keep, shared access signatures except for
// reading, CRC64 checks, customer keys, batches, and the case of metadata names (they are lower
// case, since HTTP headers are case-insensitive).
//
// One Server serves TCP listeners (Run) and calls in memory (Transport) at the same time, the
// latter also inside a testing/synctest bubble.
package blob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/state"
)

// The account and key that every Azure storage emulator has.
const (
	DefaultAccount = "devstoreaccount1"
	DefaultKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Options of a Server. The zero value is ready to use.
type Options struct {
	// Logger gets one debug line a request; nil discards.
	Logger *slog.Logger
	// Account and Key (base64) are DefaultAccount and DefaultKey when empty.
	Account, Key string
	// Token, if set, is accepted as a bearer token in addition to the key, so that a client with a
	// token credential can be tested.
	Token string
	// MaxBody bounds the body of one request in bytes; 0 means 256 MiB.
	MaxBody int64
	// OnRequest, if set, is called after every answer with its status, on the goroutine that
	// answered. It must not keep the request.
	OnRequest func(r *http.Request, status int)
}

// Server is one storage account behind the Blob REST protocol. It is safe for
// concurrent use.
type Server struct {
	opts    Options
	key     []byte
	account *state.Account

	mu         sync.Mutex
	failStatus int       // guarded by mu
	failUntil  time.Time // guarded by mu
}

// New returns a server with an empty account. It panics when Options.Key is not
// base64, which is a mistake in the program.
func New(opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Account == "" {
		opts.Account = DefaultAccount
	}
	if opts.Key == "" {
		opts.Key = DefaultKey
	}
	if opts.MaxBody == 0 {
		opts.MaxBody = 256 << 20
	}
	key, err := decodeKey(opts.Key)
	if err != nil {
		panic(fmt.Sprintf("blob: decode account key: %v", err))
	}
	return &Server{opts: opts, key: key, account: state.NewAccount()}
}

// ConnectionString returns the connection string of the default account at addr (host:port), with
// the default key.
func ConnectionString(addr string) string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=http://%s/%s;",
		DefaultAccount, DefaultKey, addr, DefaultAccount)
}

// ConnectionString returns the connection string of this server's account at addr.
func (s *Server) ConnectionString(addr string) string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=http://%s/%s;",
		s.opts.Account, s.opts.Key, addr, s.opts.Account)
}

// Fail makes the server answer every request of the next d with status (503 ServerBusy if it is 0)
// without executing it, as in an outage. A later call replaces an earlier one; d <= 0 ends it.
func (s *Server) Fail(status int, d time.Duration) {
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failStatus, s.failUntil = status, time.Now().Add(d)
}

// failing returns the status to fail with now, or 0.
func (s *Server) failing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.failUntil) {
		return s.failStatus
	}
	return 0
}

// shutdownGrace is how long Run waits for requests under way once its context
// is done; every request is answered from memory, so it is rarely needed.
const shutdownGrace = 2 * time.Second

// Run serves l until ctx is done, then closes it and every connection, and
// returns when all of their goroutines have ended. It returns nil when ctx was
// the reason.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	// Conns are counted because http.Server.Close does not wait for them.
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
		ConnState: func(_ net.Conn, cs http.ConnState) {
			switch cs {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			case http.StateActive, http.StateIdle:
			}
		},
	}
	var closing sync.WaitGroup
	closing.Add(1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if err := srv.Shutdown(grace); err != nil {
			_ = srv.Close() // the grace period is over; nothing more can be done
		}
		closing.Done()
	})
	err := srv.Serve(l)
	if stop() { // ctx is not done: the listener failed
		closing.Done()
		_ = srv.Close()
	}
	closing.Wait()
	conns.Wait()
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve blob: %w", err)
}
