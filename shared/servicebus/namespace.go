package servicebus

import (
	"cmp"
	"context"
	"fmt"
	"runtime"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/azure"
)

// Namespace is a Service Bus namespace, and how connections to it sign in.
type Namespace struct {
	host    string // fully qualified; with a port for an emulator
	scheme  string // amqps; amqp for an emulator
	tokens  tokens
	options azservicebus.ClientOptions
}

// New reads the same settings as the SDK's client. The credential is used only if they name a
// namespace. options may be nil; only the transport, TLS and the custom endpoint are used.
func New(s azure.ServiceBus, credential azcore.TokenCredential, options *azservicebus.ClientOptions) (*Namespace, error) {
	n := &Namespace{host: s.Namespace, scheme: "amqps", tokens: identity{credential}}
	if options != nil {
		n.options = *options
	}
	if s.ConnectionString != "" {
		if err := n.readConnectionString(s.ConnectionString); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// Connect opens a connection: TCP, TLS, SASL and AMQP, in some six round trips. ctx bounds only the
// opening.
func (n *Namespace) Connect(ctx context.Context) (*Conn, error) {
	opened, err := n.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", n.host, err)
	}
	return newConn(ctx, n, opened), nil
}

func (n *Namespace) dial(ctx context.Context) (*amqp.Conn, error) {
	options := &amqp.ConnOptions{
		HostName:    n.host,
		SASLType:    amqp.SASLTypeAnonymous(),
		MaxSessions: 65535,
		TLSConfig:   n.options.TLSConfig,
		Properties: map[string]any{
			"product": "Sluice", "platform": runtime.GOOS, "framework": runtime.Version(), "user-agent": n.options.ApplicationID,
		},
	}
	if n.options.NewWebSocketConn != nil {
		transport, err := n.options.NewWebSocketConn(ctx, azservicebus.NewWebSocketConnArgs{
			Host: "wss://" + n.host + "/$servicebus/websocket",
		})
		if err != nil {
			return nil, err
		}
		return amqp.NewConn(ctx, transport, options)
	}
	return amqp.Dial(ctx, n.scheme+"://"+cmp.Or(n.options.CustomEndpoint, n.host)+"/", options)
}

// audience returns the name of an entity or of its management node in a token.
func (n *Namespace) audience(path string) string { return n.scheme + "://" + n.host + "/" + path }
