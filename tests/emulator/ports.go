package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// loopback is the default address on which the servers listen and are reached.
const loopback = "127.0.0.1"

// Ports are the ports of the servers; 0 is a free one.
type Ports struct {
	Mongo          int
	ServiceBus     int   // AMQP
	Administration int   // of Service Bus: HTTP
	TLS            []int // of Service Bus: AMQP and HTTP behind TLS, on each, if TLS is served; empty: a free one
	Blob           int
}

// StandardPorts returns the ports of MongoDB, the official Service Bus emulator and Azurite.
func StandardPorts() Ports {
	return Ports{Mongo: 27017, ServiceBus: 5672, Administration: 5300, TLS: []int{5671}, Blob: 10000}
}

// PortError means that a requested port cannot be used.
type PortError struct {
	Host string
	Port int
	Err  error
}

func (e *PortError) Error() string {
	why := e.Err.Error()
	switch {
	case errors.Is(e.Err, syscall.EADDRINUSE):
		why = "another program listens there: stop it, or choose another port"
	case errors.Is(e.Err, syscall.EACCES):
		why = "this user may not listen there: choose a port above 1023"
	}
	return fmt.Sprintf("listen on %s: %s", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)), why)
}

func (e *PortError) Unwrap() error { return e.Err }

// Listen listens on a port of an address; an empty address is 127.0.0.1, and port 0 a free one.
// Connections have the latency. If a requested port cannot be used, the error is a [*PortError].
func Listen(ctx context.Context, host string, port int, latency time.Duration) (net.Listener, error) {
	if host == "" {
		host = loopback
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil && port > 0 {
		return nil, &PortError{Host: host, Port: port, Err: err}
	} else if err != nil {
		return nil, fmt.Errorf("listen on a free port: %w", err)
	}
	return netpipe.Delay(l, latency), nil
}
