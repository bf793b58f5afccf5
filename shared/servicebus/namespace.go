package servicebus

import (
	"context"
	"fmt"
	"runtime"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/azure"
)

// Namespace is where connections are made to, and how they sign in.
type Namespace struct {
	host    string // fully qualified; with a port for an emulator
	scheme  string // amqps; amqp for an emulator
	tokens  tokens
	options azservicebus.ClientOptions
}

// New reads the settings that the SDK's client reads. The credential is used only where they name a namespace; options may be
// nil: of them the transport, TLS and the custom endpoint are used.
func New(s azure.ServiceBus, credential azcore.TokenCredential, options *azservicebus.ClientOptions) (*Namespace, error) {
	n := &Namespace{host: s.Namespace, scheme: "amqps", tokens: identity{credential}}
	if options != nil {
		n.options = *options
	}
	if s.ConnectionString == "" {
		return n, nil
	}
	read, err := readConnectionString(s.ConnectionString)
	if err != nil {
		return nil, err
	}
	n.host, n.tokens = read.host, read.tokens
	if read.emulator {
		n.scheme = "amqp"
	}
	return n, nil
}

// Connect opens a connection: TCP, TLS, SASL and AMQP, some six round trips. ctx bounds the opening alone.
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
	host := n.host
	if n.options.CustomEndpoint != "" {
		host = n.options.CustomEndpoint
	}
	return amqp.Dial(ctx, n.scheme+"://"+host+"/", options)
}

// audience names an entity, or its management node, to whom a token is shown.
func (n *Namespace) audience(path string) string { return n.scheme + "://" + n.host + "/" + path }
