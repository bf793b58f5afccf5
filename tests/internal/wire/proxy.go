package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
)

// Addrs are the addresses of the three servers, as host:port.
type Addrs struct {
	Mongo, ServiceBus, Blob string
}

// Proxy is the network of one service: an address for each server that forwards to it.
type Proxy struct {
	name       string
	to         Addrs
	listeners  [3]net.Listener // in the order of Servers
	records    *Checkpoints
	storage    func(next leasecheck.Doer) leasecheck.Doer
	forwarding sync.WaitGroup

	mu   sync.Mutex          // guards everything below
	trap *Trap               // nil: everything passes
	open map[net.Conn]Server // the connections of the service
	away Server              // it cannot be reached; empty: every server can
}

// Listener opens a listener for a server.
type Listener func(ctx context.Context, server Server) (net.Listener, error)

// Loopback listens on a free port of this machine.
func Loopback(ctx context.Context, _ Server) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", "127.0.0.1:0")
}

// Listen opens the addresses of a proxy. Nothing is forwarded before [Proxy.Run], which closes
// them. The writes of checkpoints are added to records. storage, unless nil, stands between the
// proxy and Blob storage: a recorder.
func Listen(ctx context.Context, name string, to Addrs, at Listener, records *Checkpoints, storage func(next leasecheck.Doer) leasecheck.Doer) (*Proxy, error) {
	p := &Proxy{name: name, to: to, records: records, storage: storage, open: map[net.Conn]Server{}}
	for i, server := range Servers() {
		l, err := at(ctx, server)
		if err != nil {
			return nil, fmt.Errorf("listen for %s: %w", name, err)
		}
		p.listeners[i] = l
	}
	return p, nil
}

// Name returns the name of the service.
func (p *Proxy) Name() string { return p.name }

// Addrs returns the addresses that the service must use instead of the servers' own.
func (p *Proxy) Addrs() Addrs {
	return Addrs{p.listeners[0].Addr().String(), p.listeners[1].Addr().String(), p.listeners[2].Addr().String()}
}

// Arm sets a trap; one proxy has one trap at a time, and nil removes it.
func (p *Proxy) Arm(t *Trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = t
}

// Cut closes every connection of the service to a server, without a close message. New ones are
// allowed.
func (p *Proxy) Cut(server Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, to := range p.open {
		if to == server {
			c.Close()
		}
	}
}

// Away cuts the connections to a server, as Cut does, and every new one, until another server is
// away; an empty name ends that.
func (p *Proxy) Away(server Server) {
	p.mu.Lock()
	p.away = server
	p.mu.Unlock()
	p.Cut(server)
}

// connected keeps a connection of the service until the function that it returns is called.
func (p *Proxy) connected(c net.Conn, server Server) (disconnected func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = server
	if p.away == server {
		c.Close()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
	}
}

// pass waits for as long as the message is held, and reports whether it is forwarded.
func (p *Proxy) pass(u Unit) bool {
	p.mu.Lock()
	t := p.trap
	p.mu.Unlock()
	return t == nil || t.hold(p, u)
}

// Run forwards until ctx ends. A trap that holds a message must be released before, or Run does not
// return.
func (p *Proxy) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.accept(ctx, p.listeners[0], Mongo, p.to.Mongo, newMongoReader) })
	group.Go(func() error { return p.accept(ctx, p.listeners[1], ServiceBus, p.to.ServiceBus, newAMQPReader) })
	group.Go(func() error { return p.serveBlob(ctx, p.listeners[2]) })
	err := group.Wait()
	p.forwarding.Wait()
	return err
}

// reader reads the next message from a connection, of requests or of replies.
type reader func(r *bufio.Reader, reply bool) (message []byte, u Unit, err error)

func (p *Proxy) accept(ctx context.Context, l net.Listener, server Server, to string, protocol func() reader) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		client, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept a connection of %s: %w", p.name, err)
		}
		p.forwarding.Go(func() { p.splice(ctx, client, server, to, protocol()) })
	}
}

// splice forwards both directions of one connection until both have ended.
func (p *Proxy) splice(ctx context.Context, client net.Conn, of Server, to string, next reader) {
	defer client.Close()
	defer p.connected(client, of)()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return // the service sees a closed connection
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()
	var pumps sync.WaitGroup
	pumps.Go(func() {
		// Whatever ends the requests, also those of a killed service, ends them after what it had
		// sent.
		p.pump(server, client, next, false)
		server.Close()
	})
	pumps.Go(func() {
		p.pump(client, server, next, true)
		client.Close()
	})
	pumps.Wait()
}

// pump forwards one direction. A service that is gone accepts no replies: they are read and
// dropped, so that what it had sent still arrives.
func (p *Proxy) pump(to, from net.Conn, next reader, reply bool) {
	in := bufio.NewReaderSize(from, 64<<10)
	gone := false
	for {
		message, unit, err := next(in, reply)
		if err != nil || !p.pass(unit) {
			return
		}
		if gone {
			continue
		}
		if _, err := to.Write(message); err != nil {
			if !reply {
				return
			}
			gone = true
		}
	}
}

// blobConnection keeps the connections to Blob storage.
func (p *Proxy) blobConnection() func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	kept := map[net.Conn]func(){} // guarded by mu
	return func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state { //nolint:exhaustive // the others are between the two
		case http.StateNew:
			kept[c] = p.connected(c, Blob)
		case http.StateClosed:
			kept[c]()
			delete(kept, c)
		}
	}
}

// serveBlob forwards requests to Blob storage.
func (p *Proxy) serveBlob(ctx context.Context, l net.Listener) error {
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	var forward leasecheck.Doer = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if p.storage != nil {
		forward = p.storage(forward)
	}
	server := &http.Server{
		Handler:           &blobForwarder{proxy: p, to: p.to.Blob, storage: forward},
		ReadHeaderTimeout: time.Minute,
		ConnState:         p.blobConnection(),
	}
	var closing sync.WaitGroup
	closing.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer closing.Done()
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = server.Shutdown(patience), server.Close() // requests in flight are lost with their services
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		if stop() {
			closing.Done()
		}
		return fmt.Errorf("serve Blob storage for %s: %w", p.name, err)
	}
	closing.Wait()
	return nil
}
