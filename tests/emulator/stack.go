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

// The settings of the services that say where the servers are.
const (
	EnvMongo      = "MONGODB_URI"
	EnvServiceBus = "SERVICE_BUS_CONNECTION_STRING"
	EnvBlob       = "BLOB_CONNECTION_STRING"
	// EnvServiceBusTLS is where Service Bus is behind TLS, with [Options.TLS].
	EnvServiceBusTLS = "SERVICE_BUS_TLS_CONNECTION_STRING"
)

// Options say what to start. The zero value starts all three servers in this process, with the default entities.
type Options struct {
	// Logger of the servers; nil: they are silent.
	Logger *slog.Logger
	// ServiceBus are the entities; nil: [Entities].
	ServiceBus *servicebus.Config
	// ServiceBusKeys are the keys of the namespace; nil: [servicebus.RootKey], the one that the settings sign in with.
	ServiceBusKeys []servicebus.Key
	// ServiceBusConnections is how many connections Service Bus takes at a time; 0: as many as come.
	ServiceBusConnections int
	// Ports to listen on; the zero value takes free ones.
	Ports Ports
	// Host is the address to listen on; empty: 127.0.0.1, 0.0.0.0: all of the machine's.
	Host string
	// Advertise is the host by which clients reach the servers: in the settings, and in what MongoDB says of its set. Empty:
	// Host, or 127.0.0.1 where that is all addresses.
	Advertise string
	// Latency is the round trip to every server.
	Latency time.Duration
	// MongoVersion is the version of MongoDB that it is like: see [mongo.Options.Version]; the zero value is the newest.
	MongoVersion [3]int32
	// OplogBytes is how much history MongoDB keeps; 0: its own default.
	OplogBytes int
	// TransactionLifetime is how long MongoDB keeps a transaction whose client has gone, and with it what it has written from everybody
	// else; 0: 60 s, as by default.
	TransactionLifetime time.Duration
	// Snapshot is a file that keeps MongoDB's data and oplog over a restart: read at the start if it is there, written when
	// [Stack.Run] ends. Empty: nowhere. Service Bus and Blob storage start empty always.
	Snapshot string
	// TLS serves Service Bus and its administration behind TLS too, both on each of its ports: what some clients insist on, such as
	// JavaScript's administration client. They have to trust [Stack.CA].
	TLS bool
	// NoBlob leaves the blob server out, where another one takes its place.
	NoBlob bool
}

// Stack is the set of servers.
type Stack struct {
	Mongo      *mongo.Server
	ServiceBus *servicebus.Server
	Blob       *blob.Server // nil with Options.NoBlob
	Route      Route        // zero where nothing requires sessions

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

// New takes the ports; the error is a [*PortError] when one that was asked for cannot be had. Nothing is served before
// [Stack.Run], which gives them back; one of it and [Stack.Close] must be called. In a test, [Start] does it all.
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
		Logger: o.Logger, MaxConnections: o.ServiceBusConnections, Keys: o.ServiceBusKeys,
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
		// To a client this is a service like the real one: a host's name, and no word of an emulator.
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

// Reached is how clients reach a listener, as host:port.
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

// Close gives back what New took, where Run is not called.
func (s *Stack) Close() error {
	var errs []error
	for _, l := range append([]net.Listener{s.mongo, s.bus, s.manage, s.blob}, s.secure...) {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// Endpoint is one of the settings, by its name: [EnvMongo], [EnvServiceBus] or [EnvBlob]; empty for a server that was left out.
func (s *Stack) Endpoint(name string) string { return s.endpoints[name] }

// CA is the certificate, as PEM, that clients have to trust with [Options.TLS]. It is another one at every start.
func (s *Stack) CA() []byte { return s.ca }

// Management is the host:port of Service Bus's HTTP administration, which has no TLS and serves GET /health too.
func (s *Stack) Management() string { return s.management }

// Env are the settings as KEY=VALUE.
func (s *Stack) Env() []string {
	var env []string
	for _, name := range []string{EnvMongo, EnvServiceBus, EnvServiceBusTLS, EnvBlob} {
		if s.endpoints[name] != "" {
			env = append(env, name+"="+s.endpoints[name])
		}
	}
	return env
}

// Settings are KEY=VALUE, as an application takes them and Sluice's services do: where the servers are, and which entity of
// Service Bus has sessions.
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

// Run serves until ctx ends, then returns nil; an error means that a server failed, or that the snapshot could not be written.
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
