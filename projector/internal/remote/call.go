package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxDeclaration and maxAnswer bound what is read of an answer, in bytes.
	maxDeclaration = 1 << 20
	maxAnswer      = 32 << 20
	// maxRetryAfter bounds how long a program can have the projector wait.
	maxRetryAfter = 30 * time.Second
	// defaultRetryAfter is for a 429 or 503 that does not state a time.
	defaultRetryAfter = time.Second
	// idleConnection is how long an unused connection is kept: less than servers keep it, which
	// close it after five seconds by default, some of them while the next request is on its way.
	idleConnection = 3 * time.Second
	// maxIdle is how many unused connections are kept.
	maxIdle = 256
)

// kind is what a failed call shows.
type kind uint8

const (
	// away: the events did not reach the program, or it asks to wait, or the caller has ended.
	away kind = iota
	// redeclared: the program has another declaration.
	redeclared
	// invalid: the answer is not as the protocol has it, or has a status of 400 to 499.
	invalid
	// broken: the answer has another status.
	broken
	// slow: no answer came in time.
	slow
	// lost: the connection ended before the whole answer had come.
	lost
)

// callError is a failed call.
type callError struct {
	kind kind
	wait time.Duration // how long the program asks to wait
	err  error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// CheckURL returns what is wrong with the URL of a program. Without TLS it must be on this host.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return errors.New("is not a URL such as http://127.0.0.1:8088")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("must have neither a user, nor a query, nor a fragment")
	case u.Scheme == "https":
		return nil
	case u.Scheme != "http":
		return errors.New("must begin with http:// or https://")
	case !loopback(u.Hostname()):
		return errors.New("must begin with https://, because the program is not on this host (127.0.0.1, ::1 or localhost): events would cross " +
			"the network in the clear. Run the program beside the projector, in the same network namespace")
	}
	return nil
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// newHTTP returns a client that follows no redirect and uses no proxy, cookie or compression.
func newHTTP(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dial, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleConnection, DisableCompression: true,
			TLSHandshakeTimeout: 5 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// declaration asks the program for its declaration.
func (c *Client) declaration(ctx context.Context) (*Declaration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/projection", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("GET %s/projection: %w", c.url, err)
	}
	text, failed := c.do(ctx, request, maxDeclaration)
	if failed != nil {
		return nil, fmt.Errorf("GET %s/projection: %w", c.url, failed)
	}
	return ReadDeclaration(text)
}

// post sends the body of a call with n events to the program and returns its results.
func (c *Client) post(ctx context.Context, body []byte, n int, hash string) ([]Outcome, *callError) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/project", bytes.NewReader(body))
	if err != nil {
		return nil, &callError{kind: away, err: err}
	}
	request.Header.Set("Content-Type", "application/cloudevents-batch+json")
	began := time.Now()
	answer, failed := c.do(ctx, request, maxAnswer)
	var outcomes []Outcome
	if failed == nil {
		outcomes, err = readAnswer(answer, n, hash)
		switch {
		case errors.Is(err, errDeclaration):
			failed = &callError{kind: redeclared, err: err}
		case err != nil:
			failed = &callError{kind: invalid, err: err}
		}
	}
	took := time.Since(began)
	c.hooks.metrics.called(n, took, outcomes, failed)
	if failed != nil {
		failed.err = fmt.Errorf("POST %s/project: %w", c.url, failed.err)
		return outcomes, failed
	}
	c.mu.Lock()
	c.typical += (took - c.typical) / 8
	c.mu.Unlock()
	return outcomes, nil
}

// do makes one request and returns the body of an answer with status 200.
func (c *Client) do(ctx context.Context, request *http.Request, limit int64) ([]byte, *callError) {
	var sent atomic.Bool
	request = request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	response, err := c.http.Do(request)
	if err != nil {
		return nil, unanswered(ctx, sent.Load(), err)
	}
	defer response.Body.Close()
	body, err := ReadBody(io.LimitReader(response.Body, limit+1), response.ContentLength)
	switch {
	case err != nil:
		return nil, unanswered(ctx, true, err)
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable:
		return nil, &callError{kind: away, wait: retryAfter(response.Header.Get("Retry-After")), err: fmt.Errorf("the program asks to wait (%s)", response.Status)}
	case response.StatusCode == http.StatusOK && int64(len(body)) > limit:
		return nil, &callError{kind: invalid, err: fmt.Errorf("the answer has more than %d bytes", limit)}
	case response.StatusCode == http.StatusOK:
		return body, nil
	}
	failed := &callError{kind: broken, err: fmt.Errorf("the program answered %s: %s", response.Status, cut(strings.TrimSpace(string(body)), maxReason/2))}
	if response.StatusCode < http.StatusInternalServerError {
		failed.kind = invalid
	}
	return nil, failed
}

// ReadBody reads a body of length bytes; -1: it is not known. A wrong length wastes at most 1 MB.
func ReadBody(r io.Reader, length int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max(length, 0), 1<<20)) + bytes.MinRead)
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}

// unanswered classifies a request without an answer.
func unanswered(ctx context.Context, sent bool, err error) *callError {
	if address, ok := errors.AsType[*url.Error](err); ok {
		err = address.Err // without the URL, which the caller adds
	}
	switch {
	case errors.Is(context.Cause(ctx), errNotAwaited), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &callError{kind: slow, err: errors.New("the program has not answered in time")}
	case ctx.Err() != nil:
		return &callError{kind: away, err: context.Cause(ctx)}
	case !sent:
		return &callError{kind: away, err: fmt.Errorf("the program cannot be reached: %w", err)}
	}
	return &callError{kind: lost, err: fmt.Errorf("the connection ended before the whole answer had come: %w", err)}
}

// retryAfter returns how long a program asks to wait, at most maxRetryAfter.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return min(max(time.Duration(seconds)*time.Second, 0), maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	return defaultRetryAfter
}
