package emulator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// The settings of the services with the addresses of the servers.
const (
	EnvMongo      = "MONGODB_URI"
	EnvServiceBus = "SERVICE_BUS_CONNECTION_STRING"
	EnvBlob       = "BLOB_CONNECTION_STRING"
	// EnvServiceBusTLS is the address of Service Bus behind TLS, with [Options.TLS].
	EnvServiceBusTLS = "SERVICE_BUS_TLS_CONNECTION_STRING"
)

// Options select what to start. The zero value starts all three servers in this process, with the
// default entities.
type Options struct {
	// Logger of the servers; nil discards.
	Logger *slog.Logger
	// ServiceBus are the entities; nil: [Entities].
	ServiceBus *servicebus.Config
	// ServiceBusKeys are the keys of the namespace; nil: [servicebus.RootKey], which the settings
	// use.
	ServiceBusKeys []servicebus.Key
	// ServiceBusConnections is the maximum number of connections to Service Bus at a time; 0:
	// unlimited.
	ServiceBusConnections int
	// ServiceBusCredits is how many credits a second the namespace has; 0: unlimited. See
	// [servicebus.Options.Credits].
	ServiceBusCredits int
	// Ports to listen on; the zero value takes free ones.
	Ports Ports
	// Host is the address to listen on; empty: 127.0.0.1. 0.0.0.0 stands for all addresses of the
	// machine.
	Host string
	// Advertise is the host by which clients reach the servers: in the settings, and in MongoDB's
	// description of its set. Empty: Host, or 127.0.0.1 if Host stands for all addresses.
	Advertise string
	// Latency is the round trip to every server.
	Latency time.Duration
	// MongoVersion is the version of MongoDB that the server acts as: see [mongo.Options.Version];
	// the zero value is the newest.
	MongoVersion [3]int32
	// OplogBytes is the size of MongoDB's oplog; 0: the server's default.
	OplogBytes int
	// TransactionLifetime is how long MongoDB keeps a transaction whose client has gone, during
	// which its writes block other clients; 0: 60 s, the default.
	TransactionLifetime time.Duration
	// Snapshot is a file that keeps MongoDB's data and oplog over a restart: read at the start if
	// it exists, written when [Stack.Run] ends. Empty: none. Service Bus and Blob storage always
	// start empty.
	Snapshot string
	// TLS also serves Service Bus and its administration behind TLS, both on each of its ports:
	// some clients require that, such as JavaScript's administration client. They must trust
	// [Stack.CA].
	TLS bool
	// NoBlob leaves the blob server out, if another one replaces it.
	NoBlob bool
}

// Stack is the set of servers.
type Stack struct {
	Mongo      *mongo.Server
	ServiceBus *servicebus.Server
	Blob       *blob.Server // nil with Options.NoBlob
	Route      Route        // zero if no entity requires sessions

	mongo     net.Listener
	bus       net.Listener
	manage    net.Listener // of Service Bus: HTTP
	blob      net.Listener
	secure    []net.Listener // Service Bus and its administration behind TLS; none without
	tls       *tls.Config
	ca        []byte
	endpoints map[string]string
	snapshot  string

	management string
}

// New opens the ports; the error is a [*PortError] if a requested one cannot be used. Nothing is
// served before [Stack.Run], which closes them; either it or [Stack.Close] must be called. In a
// test, [Start] does all of this.
func New(ctx context.Context, o Options) (_ *Stack, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	entities := Entities()
	if o.ServiceBus != nil {
		entities = *o.ServiceBus
	}
	s := &Stack{endpoints: map[string]string{}}
	if s.Route, err = FindRoute(entities); err != nil && !errors.Is(err, ErrNoRoute) {
		return nil, err
	}
	if s.ServiceBus, err = servicebus.New(entities, servicebus.Options{
		Logger: o.Logger, MaxConnections: o.ServiceBusConnections, Credits: o.ServiceBusCredits, Keys: o.ServiceBusKeys,
	}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.mongo, err = Listen(ctx, o.Host, o.Ports.Mongo, o.Latency); err != nil {
		return nil, err
	}
	s.Mongo = mongo.New(mongo.Options{
		Logger: o.Logger, OplogBytes: o.OplogBytes, Host: o.Reached(s.mongo), TransactionLifetime: o.TransactionLifetime, Version: o.MongoVersion,
	})
	if s.snapshot = o.Snapshot; s.snapshot != "" {
		if err := restore(s.Mongo, s.snapshot); err != nil {
			return nil, err
		}
	}
	s.endpoints[EnvMongo] = mongo.URI(o.Reached(s.mongo))
	if s.bus, err = Listen(ctx, o.Host, o.Ports.ServiceBus, o.Latency); err != nil {
		return nil, err
	}
	s.endpoints[EnvServiceBus] = servicebus.ConnectionString(o.Reached(s.bus))
	if s.manage, err = Listen(ctx, o.Host, o.Ports.Administration, o.Latency); err != nil {
		return nil, err
	}
	s.management = o.Reached(s.manage)
	if o.TLS {
		ports := o.Ports.TLS
		if len(ports) == 0 {
			ports = []int{0}
		}
		for _, port := range ports {
			l, err := Listen(ctx, o.Host, port, o.Latency)
			if err != nil {
				return nil, err
			}
			s.secure = append(s.secure, l)
		}
		// To a client this looks like the real service: a host name, and no setting of an emulator.
		host, port, err := net.SplitHostPort(o.Reached(s.secure[0]))
		if err != nil {
			return nil, fmt.Errorf("read the address of Service Bus behind TLS: %w", err)
		}
		if host == "127.0.0.1" {
			host = "localhost"
		}
		if s.tls, s.ca, err = certificates(time.Now(), host); err != nil {
			return nil, err
		}
		s.endpoints[EnvServiceBusTLS] = strings.TrimSuffix(servicebus.ConnectionString(net.JoinHostPort(host, port)), "UseDevelopmentEmulator=true;")
	}
	if o.NoBlob {
		return s, nil
	}
	if s.blob, err = Listen(ctx, o.Host, o.Ports.Blob, o.Latency); err != nil {
		return nil, err
	}
	s.Blob = blob.New(blob.Options{Logger: o.Logger})
	s.endpoints[EnvBlob] = blob.ConnectionString(o.Reached(s.blob))
	return s, nil
}

// Reached returns the address by which clients reach a listener, as host:port.
func (o Options) Reached(l net.Listener) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String() // a listener of TCP has both
	}
	switch {
	case o.Advertise != "":
		host = o.Advertise
	case net.ParseIP(host).IsUnspecified():
		host = loopback
	}
	return net.JoinHostPort(host, port)
}

// Close frees what New opened, if Run is not called.
func (s *Stack) Close() error {
	var errs []error
	for _, l := range append([]net.Listener{s.mongo, s.bus, s.manage, s.blob}, s.secure...) {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// Endpoint returns one of the settings by its name: [EnvMongo], [EnvServiceBus] or [EnvBlob]; empty
// for a server that was left out.
func (s *Stack) Endpoint(name string) string { return s.endpoints[name] }

// CA returns the certificate, as PEM, that clients must trust with [Options.TLS]. It differs at
// every start.
func (s *Stack) CA() []byte { return s.ca }

// Management returns the host:port of Service Bus's HTTP administration, which has no TLS and also
// serves GET /health.
func (s *Stack) Management() string { return s.management }

// Env returns the settings as KEY=VALUE.
func (s *Stack) Env() []string {
	var env []string
	for _, name := range []string{EnvMongo, EnvServiceBus, EnvServiceBusTLS, EnvBlob} {
		if s.endpoints[name] != "" {
			env = append(env, name+"="+s.endpoints[name])
		}
	}
	return env
}

// Settings returns, as KEY=VALUE, the settings for an application and for Sluice's services: the
// addresses of the servers, and the entity of Service Bus that requires sessions.
func (s *Stack) Settings() []string {
	env := s.Env()
	switch {
	case s.Route.Queue != "":
		env = append(env, "SERVICE_BUS_QUEUE="+s.Route.Queue)
	case s.Route.Topic != "":
		env = append(env, "SERVICE_BUS_TOPIC="+s.Route.Topic, "SERVICE_BUS_SUBSCRIPTION="+s.Route.Subscription)
	}
	return append(env, "SERVICE_BUS_ADMINISTRATION=http://"+s.Management())
}

// Run serves until ctx ends, then returns nil; an error means that a server failed, or that the
// snapshot could not be written.
func (s *Stack) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Mongo.Run(ctx, s.mongo) })
	group.Go(func() error { return s.ServiceBus.Run(ctx, s.bus) })
	group.Go(func() error { return s.ServiceBus.RunManagement(ctx, s.manage) })
	for _, l := range s.secure {
		group.Go(func() error { return s.ServiceBus.RunTLS(ctx, l, s.tls) })
	}
	if s.Blob != nil {
		group.Go(func() error { return s.Blob.Run(ctx, s.blob) })
	}
	err := group.Wait()
	for _, l := range append([]net.Listener{s.mongo, s.bus, s.manage, s.blob}, s.secure...) {
		if delayed, ok := l.(*netpipe.DelayListener); ok {
			delayed.Wait()
		}
	}
	if err != nil {
		err = fmt.Errorf("serve the embedded stack: %w", err)
	}
	if s.snapshot != "" {
		err = errors.Join(err, save(s.Mongo, s.snapshot))
	}
	return err
}
