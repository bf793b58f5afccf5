package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// errAzuriteEnded means that Azurite's process ended before it was stopped.
var errAzuriteEnded = errors.New("azurite ended unexpectedly")

// startAzurite starts Azurite and, if a latency or a certain port is requested, a proxy in front of
// it: Azurite cannot delay answers, and listens on a free port.
func (s *Stack) startAzurite(ctx context.Context, o Options) (err error) {
	if s.azurite, err = azurite.Start(ctx, azurite.Options{Dir: o.AzuriteDir}); err != nil {
		return fmt.Errorf("start Azurite: %w", err)
	}
	if o.Latency <= 0 && o.Ports.Blob == 0 {
		s.endpoint = s.azurite.ConnectionString()
		return nil
	}
	if s.proxy, err = emulator.Listen(ctx, o.Host, o.Ports.Blob, o.Latency); err != nil {
		return err
	}
	// A signature covers the path and not the host, so another address in front of it works as
	// well.
	s.endpoint = blob.ConnectionString(s.proxy.Addr().String())
	return nil
}

// runAzurite serves until ctx ends, then stops the process.
func (s *Stack) runAzurite(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var proxy sync.WaitGroup
	if s.proxy != nil {
		proxy.Go(func() { forward(ctx, s.proxy, s.azurite.Addr()) })
	}
	var err error
	select {
	case <-ctx.Done():
	case <-s.azurite.Done():
		err = errAzuriteEnded
	}
	cancel()
	proxy.Wait()
	if delayed, ok := s.proxy.(*netpipe.DelayListener); ok {
		delayed.Wait()
	}
	return errors.Join(err, s.azurite.Stop())
}

// forward hands every connection of l on to addr until ctx ends. On return l and all connections
// are closed.
func forward(ctx context.Context, l net.Listener, addr string) {
	var connections sync.WaitGroup
	defer connections.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		in, err := l.Accept()
		if err != nil {
			return // closed: ctx has ended
		}
		connections.Go(func() { splice(ctx, in, addr) })
	}
}

// splice copies both ways until either side is closed or ctx ends.
func splice(ctx context.Context, in net.Conn, addr string) {
	defer func() { _ = in.Close() }()
	var dialer net.Dialer
	out, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return // the client sees a closed connection
	}
	stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
	defer stop()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		ways.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // the end of one direction closes both
			_, _ = in.Close(), out.Close()
		})
	}
	ways.Wait()
}
