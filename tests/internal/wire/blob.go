package wire

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"

	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
)

// blobForwarder forwards requests to the storage. A signature covers the path and not the host, so
// another address in front of it works as well.
type blobForwarder struct {
	proxy   *Proxy
	to      string
	storage leasecheck.Doer
}

func (f *blobForwarder) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the service has gone before it had sent the whole request, so nothing was sent
	}
	u := Unit{Server: Blob, Name: asked(in), Bytes: len(body)}
	if !f.proxy.pass(u) {
		panic(http.ErrAbortHandler)
	}
	answered := f.proxy.records.arrived(u, in, body)
	// A request that was sent is carried out, whether or not its sender still lives.
	request := in.Clone(context.WithoutCancel(in.Context()))
	request.RequestURI, request.URL.Scheme, request.URL.Host = "", "http", f.to
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		request.Body = http.NoBody
	}
	response, err := f.storage.Do(request)
	if err != nil {
		if answered != nil {
			answered(0)
		}
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	var delivered func()
	if answered != nil {
		delivered = answered(response.StatusCode)
	}
	u.Reply = true
	if err != nil || !f.proxy.pass(u) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(out.Header(), response.Header)
	out.WriteHeader(response.StatusCode)
	if _, err := out.Write(content); err == nil && delivered != nil {
		delivered()
	}
}

// asked returns the name of a request's operation.
func asked(r *http.Request) string {
	query := r.URL.Query()
	switch {
	case query.Get("comp") == "lease":
		return r.Header.Get("x-ms-lease-action")
	case r.Method == http.MethodPut && query.Get("comp") == "" && query.Get("restype") == "":
		return "write"
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && query.Get("restype") == "":
		return "read"
	}
	return "other"
}
