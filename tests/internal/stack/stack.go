package stack

import (
	"context"
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
	"github.com/sluice-cdc/sluice/tests/internal/azurite"
)

// The settings of the services that say where the servers are.
const (
	EnvMongo      = "MONGODB_URI"
	EnvServiceBus = "SERVICE_BUS_CONNECTION_STRING"
	EnvBlob       = "BLOB_CONNECTION_STRING"
)

// Options say what to start. The zero value starts all three servers in this process, with the default entities.
type Options struct {
	// Logger of the servers; nil: they are silent.
	Logger *slog.Logger
	// ServiceBus are the entities; nil: [Entities].
	ServiceBus *servicebus.Config
	// Ports to listen on; the zero value takes free ones.
	Ports Ports
	// Latency is the round trip to every server.
	Latency time.Duration
	// OplogBytes is how much history MongoDB keeps; 0: its own default.
	OplogBytes int
	// Azurite takes the place of the in-process blob server.
	Azurite bool
	// AzuriteDir is where it is installed; empty: tests/azurite above the working directory.
	AzuriteDir string
}

// Stack is the set of servers.
type Stack struct {
	Mongo      *mongo.Server
	ServiceBus *servicebus.Server
	Blob       *blob.Server // nil with Azurite
	Route      Route        // zero where nothing requires sessions

	latency   time.Duration
	mongo     net.Listener
	bus       net.Listener
	manage    net.Listener // of Service Bus: HTTP
	blob      net.Listener // with Azurite: of the proxy that adds the latency; nil without latency
	azurite   *azurite.Process
	endpoints map[string]string
}

// New takes the ports; the error is a [*PortError] when one that was asked for cannot be had. Nothing is served before
// [Stack.Run], which gives them back; one of it and [Stack.Close] must be called. With Azurite its process is started
// here, since only then is its address known; ctx bounds the start.
func New(ctx context.Context, o Options) (_ *Stack, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	entities := Entities()
	if o.ServiceBus != nil {
		entities = *o.ServiceBus
	}
	s := &Stack{latency: o.Latency, endpoints: map[string]string{}}
	if s.Route, err = FindRoute(entities); err != nil && !errors.Is(err, ErrNoRoute) {
		return nil, err
	}
	if s.ServiceBus, err = servicebus.New(entities, servicebus.Options{Logger: o.Logger}); err != nil {
		return nil, err
	}
	s.Mongo = mongo.New(mongo.Options{Logger: o.Logger, OplogBytes: o.OplogBytes})
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.mongo, err = s.listen(ctx, o.Ports.Mongo); err != nil {
		return nil, err
	}
	s.endpoints[EnvMongo] = mongo.URI(s.mongo.Addr().String())
	if s.bus, err = s.listen(ctx, o.Ports.ServiceBus); err != nil {
		return nil, err
	}
	s.endpoints[EnvServiceBus] = servicebus.ConnectionString(s.bus.Addr().String())
	if s.manage, err = s.listen(ctx, o.Ports.Administration); err != nil {
		return nil, err
	}
	if o.Azurite {
		err = s.startAzurite(ctx, o)
		return s, err
	}
	if s.blob, err = s.listen(ctx, o.Ports.Blob); err != nil {
		return nil, err
	}
	s.Blob = blob.New(blob.Options{Logger: o.Logger})
	s.endpoints[EnvBlob] = blob.ConnectionString(s.blob.Addr().String())
	return s, nil
}

// Close gives back what New took, where Run is not called.
func (s *Stack) Close() error {
	var errs []error
	for _, l := range []net.Listener{s.mongo, s.bus, s.manage, s.blob} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if s.azurite != nil {
		errs = append(errs, s.azurite.Stop())
	}
	return errors.Join(errs...)
}

// Endpoint is one of the settings, by its name: [EnvMongo], [EnvServiceBus] or [EnvBlob].
func (s *Stack) Endpoint(name string) string { return s.endpoints[name] }

// Host is the host:port in one of the settings, for whoever stands between a service and its server.
func Host(endpoint string) string {
	for _, start := range []string{"BlobEndpoint=http://", "sb://", "mongodb://"} {
		if _, rest, found := strings.Cut(endpoint, start); found {
			return rest[:strings.IndexAny(rest+"/", "/;")]
		}
	}
	return ""
}

// Management is the host:port of Service Bus's HTTP administration, which has no TLS and serves GET /health too.
func (s *Stack) Management() string { return s.manage.Addr().String() }

// Env are the settings as KEY=VALUE.
func (s *Stack) Env() []string {
	var env []string
	for _, name := range []string{EnvMongo, EnvServiceBus, EnvBlob} {
		env = append(env, name+"="+s.endpoints[name])
	}
	return env
}

// Run serves until ctx ends, then returns nil; an error means that a server failed.
func (s *Stack) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Mongo.Run(ctx, s.mongo) })
	group.Go(func() error { return s.ServiceBus.Run(ctx, s.bus) })
	group.Go(func() error { return s.ServiceBus.RunManagement(ctx, s.manage) })
	if s.azurite != nil {
		group.Go(func() error { return s.runAzurite(ctx) })
	} else {
		group.Go(func() error { return s.Blob.Run(ctx, s.blob) })
	}
	err := group.Wait()
	for _, l := range []net.Listener{s.mongo, s.bus, s.manage, s.blob} {
		if delayed, ok := l.(*netpipe.DelayListener); ok {
			delayed.Wait()
		}
	}
	if err != nil {
		return fmt.Errorf("serve the embedded stack: %w", err)
	}
	return nil
}
