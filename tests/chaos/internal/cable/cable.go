package cable

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/netns"
)

// Direction is one of a cable's.
type Direction int

// The directions.
const (
	Requests Direction = iota // from the service to the servers
	Answers                   // from the servers to the service
)

// Both directions.
func Both() []Direction { return []Direction{Requests, Answers} }

// Offsets of the addresses in an IPv4 header [RFC 791 3.1].
const (
	source      = 12
	destination = 16
)

// Cable joins the namespace of one service with that of its servers.
type Cable struct {
	servers []netip.Addr
	devices []*os.File
	lanes   [2]*lane // by direction
}

// Plug makes a cable between two namespaces; the first Conditions are good. number tells the cables of one namespace of
// servers apart, from 0 to 255. Nothing passes before [Cable.Run], which takes the cable away again; one of it and
// [Cable.Close] must be called.
func Plug(ctx context.Context, service, servers *netns.Namespace, number int, seed uint64) (_ *Cable, err error) {
	// RFC 2544 sets 198.18.0.0/15 aside for tests of networks; here it is in the two namespaces alone.
	at := func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(number), host}) }
	c := &Cable{servers: []netip.Addr{at(1), at(2), at(3)}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	theirs, err := c.device(ctx, service, "cable", []netip.Addr{at(10)})
	if err != nil {
		return nil, err
	}
	ours, err := c.device(ctx, servers, fmt.Sprintf("cable%d", number), c.servers)
	if err != nil {
		return nil, err
	}
	c.lanes[Requests] = newLane(theirs, ours, destination, seed)
	c.lanes[Answers] = newLane(ours, theirs, source, seed)
	return c, nil
}

// device makes a TUN device with its addresses.
func (c *Cable) device(ctx context.Context, in *netns.Namespace, name string, addrs []netip.Addr) (device *os.File, err error) {
	err = in.Do(func() error {
		device, err = open(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a network device in %s: %w", in.Name(), err)
	}
	c.devices = append(c.devices, device)
	for _, addr := range addrs {
		if err := in.IP(ctx, "addr", "add", addr.String()+"/24", "dev", name); err != nil {
			return nil, err
		}
	}
	return device, in.IP(ctx, "link", "set", name, "up", "mtu", fmt.Sprint(mtu))
}

// Servers are the addresses of the servers' side, three of them. Each has Conditions of its own.
func (c *Cable) Servers() []netip.Addr { return c.servers }

// Set changes a direction of the way to one server. What is on its way arrives as it would have.
func (c *Cable) Set(d Direction, server netip.Addr, to Conditions) { c.lanes[d].set(server, to) }

// Forget cuts the connections with a server that there are, for good and without a word, as something does that translates
// addresses and has forgotten them. New ones are not affected.
func (c *Cable) Forget(server netip.Addr) {
	for _, l := range c.lanes {
		l.forget(server)
	}
}

// Count is how many packets a direction has had.
func (c *Cable) Count(d Direction) Counts { return c.lanes[d].count() }

// Run carries packets until ctx ends.
func (c *Cable) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return c.Close() // ends the reads
	})
	for _, l := range c.lanes {
		group.Go(l.read)
		group.Go(func() error { return l.deliver(ctx) })
	}
	return group.Wait()
}

// Close takes the cable away.
func (c *Cable) Close() error {
	var errs []error
	for _, d := range c.devices {
		if err := d.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
