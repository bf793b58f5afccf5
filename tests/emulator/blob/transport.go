package blob

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/textproto"
	"time"
)

// Transport carries requests to a Server without a socket. It is a Transporter of azcore and an
// http.RoundTripper. The server answers on the caller's goroutine, so it works in a
// testing/synctest bubble.
type Transport struct {
	server *Server
	// Delay is the simulated round trip: half passes before the server receives the request and
	// half after it. If the context ends in the second half, the request took effect and its answer
	// is lost.
	Delay time.Duration
}

var _ http.RoundTripper = (*Transport)(nil)

// Transport returns a new in-memory transport to the server.
func (s *Server) Transport() *Transport { return &Transport{server: s} }

// RoundTrip calls Do.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) { return t.Do(r) }

// Do answers r as the server would over HTTP, or fails with the context's error.
func (t *Transport) Do(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if err := wait(ctx, t.Delay/2); err != nil {
		return nil, err
	}
	in := r.Clone(ctx)
	in.Header = make(http.Header, len(r.Header))
	for name, values := range r.Header { // the SDK's header names are not canonical
		in.Header[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	if in.Host == "" {
		in.Host = in.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	out := &memoryWriter{header: http.Header{}}
	t.server.ServeHTTP(out, in)
	_ = in.Body.Close() // a transport closes the body, and cannot report a failure
	if err := wait(ctx, t.Delay-t.Delay/2); err != nil {
		return nil, err
	}
	return out.response(r), nil
}

// wait lets d pass, unless ctx ends before.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// memoryWriter is a response kept in memory.
type memoryWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *memoryWriter) Header() http.Header { return w.header }

func (w *memoryWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (w *memoryWriter) response(r *http.Request) *http.Response {
	w.WriteHeader(http.StatusOK)
	header := make(http.Header, len(w.header))
	for name, values := range w.header { // as a client reads them from a socket
		header[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	resp := &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: http.NoBody, ContentLength: int64(w.body.Len()), Request: r,
	}
	if r.Method != http.MethodHead {
		resp.Body = io.NopCloser(bytes.NewReader(w.body.Bytes()))
	}
	return resp
}
