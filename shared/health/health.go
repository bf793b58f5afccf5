// Package health serves a service's state over HTTP, for the platform and for people: /livez,
// /readyz, /metrics, /status.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Probes are a service's answers. Every function is called from several goroutines at once, and the
// first four must not block.
type Probes struct {
	// Live returns nil while the process works. An error makes the platform restart it.
	Live func() error
	// Ready returns nil while the service can do its work. A standby is ready, because a rollout
	// waits until it is.
	Ready func() error
	// Status returns what /status shows to people, as JSON.
	Status func() any
	// Metrics serves /metrics.
	Metrics http.Handler
	// More are further answers by their patterns, such as "GET /applied". They may block.
	More map[string]http.HandlerFunc
}

// Serve answers on addr, the setting HTTP_ADDR (host:port; port 0 takes a free one, which is
// logged), until ctx ends, then closes every connection and returns nil. Any other end is an error.
func Serve(ctx context.Context, addr string, p Probes, log *slog.Logger) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for health checks on %s: %w: set HTTP_ADDR to another address (such as :8081), or leave it empty (HTTP_ADDR=) "+
			"to serve no health checks and metrics", addr, err)
	}
	log.Info("serving health checks", telemetry.KeyAddr, listener.Addr().String())

	server := &http.Server{Handler: Handler(p), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) || ctx.Err() == nil {
		return fmt.Errorf("serve health checks on %s: %w", addr, err)
	}
	return nil
}

// Handler serves the four paths, and what the service adds.
func Handler(p Probes) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", probe(p.Live))
	mux.Handle("GET /readyz", probe(p.Ready))
	mux.Handle("GET /metrics", p.Metrics)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, http.StatusOK, p.Status()) })
	for pattern, answer := range p.More {
		mux.HandleFunc(pattern, answer)
	}
	return mux
}

// WriteJSON answers a request with a value.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the reader may have gone
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, terminal.Lines(err.Error()), http.StatusServiceUnavailable) // it may quote a document
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}
}
