package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// idleConnections is the number of connections that are kept for the next request.
const idleConnections = 8

// address is what a URL contains.
type address struct {
	hostPort           string
	tls                *tls.Config // nil: no TLS
	user, password, db string
}

func parseURL(text string) (address, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Hostname() == "" || parsed.Scheme != "redis" && parsed.Scheme != "rediss" || parsed.RawQuery != "" {
		return address{}, errors.New(URLVariable + ": must be redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// with TLS; " +
			"the user, the password and the database may be left out")
	}
	port := parsed.Port()
	if port == "" {
		port = "6379"
	}
	a := address{hostPort: net.JoinHostPort(parsed.Hostname(), port), user: parsed.User.Username(), db: strings.Trim(parsed.Path, "/")}
	a.password, _ = parsed.User.Password()
	if parsed.Scheme == "rediss" {
		a.tls = &tls.Config{ServerName: parsed.Hostname(), MinVersion: tls.VersionTLS12}
	}
	if _, err := strconv.ParseUint(a.db, 10, 16); a.db != "" && err != nil {
		return address{}, errors.New(URLVariable + ": the database must be a number")
	}
	return a, nil
}

// pool holds the idle connections to an instance. A request has a connection of its own, so that a
// slow one delays no heartbeat. A connection whose request failed is closed, because its next
// response would be that of the earlier request.
type pool struct {
	address address

	mu     sync.Mutex
	idle   []*connection // guarded by mu
	closed bool          // guarded by mu
}

// connection is a connection with its reader.
type connection struct {
	net.Conn
	responses *bufio.Reader
}

// do sends one command, and returns the response. Errors: a [*serverError], or those of the
// network; after the latter it is unknown whether the command was executed. A command on a
// connection that the server has closed meanwhile fails and is not sent again.
func (p *pool) do(ctx context.Context, args ...string) (response, error) {
	c, err := p.get(ctx)
	if err != nil {
		return response{}, err
	}
	r, err := c.do(ctx, args...)
	if _, refused := errors.AsType[*serverError](err); err != nil && !refused {
		c.Close()
		return response{}, err
	}
	p.put(c)
	return r, err
}

func (p *pool) get(ctx context.Context) (*connection, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	return p.dial(ctx)
}

func (p *pool) put(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= idleConnections {
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.Close()
	}
	p.idle, p.closed = nil, true
	return nil
}

func (p *pool) dial(ctx context.Context) (*connection, error) {
	a := p.address
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", a.hostPort)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis: %w", err)
	}
	if a.tls != nil {
		secure := tls.Client(conn, a.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, fmt.Errorf("connect to Redis: %w", err)
		}
		conn = secure
	}
	c := &connection{conn, bufio.NewReader(conn)}
	var first [][]string
	switch {
	case a.password != "" && a.user != "":
		first = append(first, []string{"AUTH", a.user, a.password})
	case a.password != "":
		first = append(first, []string{"AUTH", a.password})
	}
	if a.db != "" {
		first = append(first, []string{"SELECT", a.db})
	}
	for _, command := range first {
		if _, err := c.do(ctx, command...); err != nil {
			c.Close()
			return nil, fmt.Errorf("connect to Redis: %s: %w", command[0], err)
		}
	}
	return c, nil
}

// do sends a command and reads its response. It returns when ctx ends; the connection is of no use
// after that.
func (c *connection) do(ctx context.Context, args ...string) (response, error) {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return response{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // a closed connection needs none
	r, err := c.exchange(args)
	if !stop() && ctx.Err() != nil { // the deadline may be set after the response was read
		return response{}, ctx.Err()
	}
	return r, err
}

func (c *connection) exchange(args []string) (response, error) {
	if _, err := c.Write(command(args)); err != nil {
		return response{}, err
	}
	r, err := readResponse(c.responses, 0)
	if err == nil && r.failed {
		err = &serverError{string(r.text)}
	}
	return r, err
}
