package cable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// mtu is Ethernet's largest packet.
	mtu = 1500
	// underWay is how many packets a direction holds at once; any more are lost, as in any queue.
	underWay = 4096
)

// Counts are the packets of a direction so far.
type Counts struct {
	Passed, Late, Lost, Cut int64
}

// lane is one direction.
type lane struct {
	from io.Reader // each read returns one packet
	to   io.Writer // each write takes one packet
	// server is the offset of the server's address in a packet's header.
	server int
	random *rand.Rand // used only by read

	mu         sync.Mutex // guards everything below
	conditions map[netip.Addr]Conditions
	// flows are the connections that had packets; the value is true if the connection is forgotten.
	flows  map[flow]bool
	counts Counts
	queue  []packet      // by when they are due, and then by arrival
	filled chan struct{} // receives a value when the queue has a new first packet
}

func newLane(from io.Reader, to io.Writer, server int, seed uint64) *lane {
	return &lane{
		from: from, to: to, server: server, random: rand.New(rand.NewPCG(seed, uint64(server))),
		conditions: map[netip.Addr]Conditions{}, flows: map[flow]bool{}, filled: make(chan struct{}, 1),
	}
}

// flow is a TCP connection: a server's address and the two ports, in the order in which they appear
// in the lane's packets.
type flow struct {
	server netip.Addr
	ports  [4]byte
}

// passes reports whether a packet's connection is not forgotten. A packet that opens a connection
// makes it known again.
func (l *lane) passes(server netip.Addr, p []byte) bool {
	const tcp, syn = 6, 2
	size := int(p[0]&0xf) * 4
	if p[9] != tcp || len(p) < size+20 { // [RFC 791 3.1], [RFC 9293 3.1]
		return true
	}
	f := flow{server, [4]byte(p[size : size+4])}
	if l.flows[f] && p[size+13]&syn == 0 {
		return false
	}
	l.flows[f] = false
	return true
}

// forget cuts the present connections to a server.
func (l *lane) forget(server netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.flows {
		l.flows[f] = l.flows[f] || f.server == server
	}
}

func (l *lane) set(server netip.Addr, c Conditions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conditions[server] = c
}

func (l *lane) count() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// read takes packets until the reader is closed.
func (l *lane) read() error {
	buffer := make([]byte, mtu)
	for {
		n, err := l.from.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a packet: %w", err)
		}
		l.take(append([]byte(nil), buffer[:n]...), time.Now())
	}
}

// take decides the fate of a packet.
func (l *lane) take(p []byte, now time.Time) {
	const header = 20 // of IPv4 [RFC 791 3.1]; other packets of a kernel, such as IPv6 announcements, are ignored
	if len(p) < header || p[0]>>4 != 4 {
		return
	}
	server := netip.AddrFrom4([4]byte(p[l.server : l.server+4]))
	l.mu.Lock()
	defer l.mu.Unlock()
	what, after := decide(l.conditions[server], l.random)
	if !l.passes(server, p) {
		what = cut
	}
	if len(l.queue) == underWay && what != cut {
		what = lost
	}
	switch what {
	case cut:
		l.counts.Cut++
		return
	case lost:
		l.counts.Lost++
		return
	case late:
		l.counts.Late++
	case passes:
		l.counts.Passed++
	}
	due := now.Add(after)
	at := sort.Search(len(l.queue), func(i int) bool { return l.queue[i].due.After(due) })
	l.queue = slices.Insert(l.queue, at, packet{p, due})
	if at == 0 {
		select {
		case l.filled <- struct{}{}:
		default: // it already has a value
		}
	}
}

// deliver writes packets when they are due, until ctx ends.
func (l *lane) deliver(ctx context.Context) error {
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		next, wait := l.next(time.Now())
		if next != nil {
			// A kernel refuses a packet if the device is gone or its queue is full: then the packet
			// is lost.
			if _, err := l.to.Write(next); err != nil && ctx.Err() == nil && errors.Is(err, os.ErrClosed) {
				return fmt.Errorf("write a packet: %w", err)
			}
			continue
		}
		due.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-l.filled:
		case <-due.C:
		}
	}
}

// next returns the packet that is due, or how long to wait for one.
func (l *lane) next(now time.Time) (due []byte, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil, time.Hour // or until a packet comes
	}
	if wait := l.queue[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	due = l.queue[0].bytes
	l.queue[0] = packet{}
	l.queue = l.queue[1:]
	return due, 0
}

// packet is a packet in flight.
type packet struct {
	bytes []byte
	due   time.Time
}
