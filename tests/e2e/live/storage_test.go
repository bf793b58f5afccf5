package live

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
)

// storage stands before Blob storage and records the writes of the checkpoints, in the order in which it took them.
type storage struct {
	streams  []string // whose checkpoints these are
	to       http.RoundTripper
	accepted func() int // messages that the broker has accepted

	writing sync.Mutex // one write on its way to Blob storage at a time

	mu     sync.Mutex
	writes []checker.Write // guarded by mu
}

// serveStorage forwards to Blob storage until the test ends, and says where.
func serveStorage(t *testing.T, to string, streams []string, accepted func() int) (s *storage, addr string) {
	t.Helper()
	transport := &http.Transport{}
	s = &storage{streams: streams, to: transport, accepted: accepted}
	proxy := &httputil.ReverseProxy{Transport: s, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", to // a signature covers the path and not the host
	}, ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler) // no answer
	}}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		// What was asked for is done, whether or not who asked still lives.
		carriedOut, done := context.WithCancel(context.WithoutCancel(in.Context()))
		defer done()
		proxy.ServeHTTP(out, in.WithContext(carriedOut))
	})}
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // until it is closed below
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
		transport.CloseIdleConnections()
	})
	return s, l.Addr().String()
}

// RoundTrip implements [http.RoundTripper].
func (s *storage) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut || r.URL.RawQuery != "" || !strings.HasSuffix(r.URL.Path, ".json") {
		return s.to.RoundTrip(r)
	}
	write := checker.Write{LeaseID: r.Header.Get("x-ms-lease-id"), Began: time.Now(), Accepted: s.accepted()}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err // whoever asked is gone before it had sent all
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	var record struct {
		Stream    string `json:"stream"`
		Epoch     int64  `json:"epoch"`
		Leader    string `json:"leader"`
		Position  string `json:"position"`
		Published int64  `json:"published"`
	}
	if err := json.Unmarshal(text, &record); err != nil {
		return nil, err
	}
	if !slices.Contains(s.streams, record.Stream) {
		return s.to.RoundTrip(r) // of a doctor that tries whether it can
	}
	write.Stream, write.Epoch, write.Leader, write.Position, write.Published = record.Stream, record.Epoch, record.Leader, record.Position, record.Published
	s.writing.Lock()
	defer s.writing.Unlock()
	response, err := s.to.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusCreated {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.writes = append(s.writes, write)
	}
	return response, err
}

// last is the last write of a stream's checkpoint.
func (s *storage) last(stream string) (w checker.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range slices.Backward(s.writes) {
		if w.Stream == stream {
			return w
		}
	}
	return w
}

func (s *storage) all() []checker.Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.writes)
}
