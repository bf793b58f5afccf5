package world

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Plug connects a service to a server, or to the network, and can be pulled. The zero value is
// plugged in.
type Plug struct {
	mu      sync.Mutex // guards everything below
	conns   []net.Conn
	pulled  bool
	stalled chan struct{} // if not nil, writes wait until it is closed
	fuse    *Fuse         // nil never blows
}

// Dialer returns a dialer whose connections go through the plug.
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

// Stall holds back everything that is written from now on. What was held back is lost if the plug
// is pulled.
func (p *Plug) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = make(chan struct{})
}

// Resume delivers what Stall has held back.
func (p *Plug) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// Pull cuts every connection and prevents new ones.
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

// PlugIn allows new connections again.
func (p *Plug) PlugIn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulled = false
}

// Transport returns a transport to Blob storage through the plug: while the plug is pulled,
// requests wait until their contexts end.
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

// Fuse pulls plugs after a number of writes.
type Fuse struct {
	mu    sync.Mutex // guards everything below
	left  int        // writes that it still lets through
	blown bool
	plugs []*Plug
}

// LayFuse returns a fuse that blows after n writes through any of the plugs.
func LayFuse(n int, plugs ...*Plug) *Fuse {
	f := &Fuse{left: n, plugs: plugs}
	for _, p := range plugs {
		p.mu.Lock()
		p.fuse = f
		p.mu.Unlock()
	}
	return f
}

// HasBlown reports whether the plugs have been pulled.
func (f *Fuse) HasBlown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blown
}

// burn counts one write.
func (f *Fuse) burn() {
	f.mu.Lock()
	f.left--
	blows := f.left < 0 && !f.blown
	f.blown = f.blown || blows
	f.mu.Unlock()
	if blows {
		for _, p := range f.plugs {
			p.Pull()
		}
	}
}
