package world

import (
	"context"
	"errors"
	"net"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// ByName is a network with one host.
type ByName struct{ Listener *netpipe.Listener }

func (n ByName) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if addr != n.Listener.Addr().String() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such host")}
	}
	return n.Listener.DialContext(ctx, network, addr)
}

// BlobOptions returns the options of a client of Blob storage that uses this transport.
func BlobOptions(transport policy.Transporter) *azblob.ClientOptions {
	o := &azblob.ClientOptions{}
	o.Transport = transport
	return o
}

// BusOptions returns the options of a client of Service Bus that uses this dialer.
func BusOptions(transport options.ContextDialer) *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return transport.DialContext(ctx, "", "")
		},
	}
}

// MongoOptions makes a client of MongoDB use this dialer.
func MongoOptions(transport options.ContextDialer) func(*options.ClientOptions) {
	return func(o *options.ClientOptions) { o.SetDialer(transport) }
}
