package world

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// Plug is what connects a service to a server, or to the network. The zero value is plugged in.
type Plug struct {
	mu      sync.Mutex // guards everything below
	conns   []net.Conn
	pulled  bool
	stalled chan struct{} // while not nil, what is written waits for it to be closed
	fuse    *Fuse         // nil never blows
}

// Dialer is a way through the plug.
func (p *Plug) Dialer(to options.ContextDialer) options.ContextDialer { return dialer{p, to} }

type dialer struct {
	plug *Plug
	to   options.ContextDialer
}

func (d dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	d.plug.mu.Lock()
	defer d.plug.mu.Unlock()
	if d.plug.pulled {
		return nil, net.ErrClosed
	}
	c, err := d.to.DialContext(ctx, network, addr)
	if err == nil {
		c = &pluggedConn{c, d.plug}
		d.plug.conns = append(d.plug.conns, c)
	}
	return c, err
}

// pluggedConn is a connection through a plug.
type pluggedConn struct {
	net.Conn
	plug *Plug
}

func (c *pluggedConn) Write(b []byte) (int, error) {
	c.plug.mu.Lock()
	stalled, fuse := c.plug.stalled, c.plug.fuse
	c.plug.mu.Unlock()
	if fuse != nil {
		fuse.burn()
	}
	if stalled != nil {
		<-stalled
	}
	return c.Conn.Write(b)
}

// Stall holds back what is written from now on. What was held back is lost when the plug is pulled.
func (p *Plug) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = make(chan struct{})
}

// Pull cuts every connection and lets no new one be made.
func (p *Plug) Pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulled = true
	for _, c := range p.conns {
		c.Close()
	}
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// PlugIn lets connections be made again.
func (p *Plug) PlugIn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulled = false
}

// Transport is a way to Blob storage through the plug: while it is pulled, requests hang until their context ends.
func (p *Plug) Transport(to policy.Transporter) policy.Transporter { return transport{p, to} }

type transport struct {
	plug *Plug
	to   policy.Transporter
}

func (t transport) Do(r *http.Request) (*http.Response, error) {
	t.plug.mu.Lock()
	pulled := t.plug.pulled
	t.plug.mu.Unlock()
	if pulled {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return t.to.Do(r)
}

// ByName is a network with one host.
type ByName struct{ Listener *netpipe.Listener }

func (n ByName) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if addr != n.Listener.Addr().String() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such host")}
	}
	return n.Listener.DialContext(ctx, network, addr)
}

// BlobOptions are those of a client of Blob storage on this way to it.
func BlobOptions(way policy.Transporter) *azblob.ClientOptions {
	o := &azblob.ClientOptions{}
	o.Transport = way
	return o
}

// BusOptions are those of a client of Service Bus on this way to it.
func BusOptions(way options.ContextDialer) *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return way.DialContext(ctx, "", "")
		},
	}
}

// MongoOptions make a client of MongoDB use this way to it.
func MongoOptions(way options.ContextDialer) func(*options.ClientOptions) {
	return func(o *options.ClientOptions) { o.SetDialer(way) }
}
