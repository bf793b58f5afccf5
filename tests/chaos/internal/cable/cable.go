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

// Direction is a direction of a cable.
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

// Plug creates a cable between two namespaces, without any fault. number identifies the cable among
// those of one namespace of servers, from 0 to 255. No packet passes before [Cable.Run], which also
// removes the cable. The caller must call either Run or [Cable.Close].
func Plug(ctx context.Context, service, servers *netns.Namespace, number int, seed uint64) (_ *Cable, err error) {
	// RFC 2544 reserves 198.18.0.0/15 for tests of networks; here it exists only in the two
	// namespaces.
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

// device creates a TUN device with its addresses.
func (c *Cable) device(ctx context.Context, in *netns.Namespace, name string, addrs []netip.Addr) (device *os.File, err error) {
	err = in.Do(func() error {
		device, err = open(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create a network device in %s: %w", in.Name(), err)
	}
	c.devices = append(c.devices, device)
	for _, addr := range addrs {
		if err := in.IP(ctx, "addr", "add", addr.String()+"/24", "dev", name); err != nil {
			return nil, err
		}
	}
	return device, in.IP(ctx, "link", "set", name, "up", "mtu", fmt.Sprint(mtu))
}

// Servers returns the three addresses of the servers' side. Each has Conditions of its own.
func (c *Cable) Servers() []netip.Addr { return c.servers }

// Set changes one direction to one server. Packets in flight arrive as before.
func (c *Cable) Set(d Direction, server netip.Addr, to Conditions) { c.lanes[d].set(server, to) }

// Forget cuts the present connections to a server for good and without an error, as an address
// translator does that has forgotten them. New connections are not affected.
func (c *Cable) Forget(server netip.Addr) {
	for _, l := range c.lanes {
		l.forget(server)
	}
}

// Count returns how many packets passed in a direction.
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

// Close removes the cable.
func (c *Cable) Close() error {
	var errs []error
	for _, d := range c.devices {
		if err := d.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
