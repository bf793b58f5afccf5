package stack

import (
	"context"
	"errors"
	"net"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
)

// The default entities of the embedded servers, and the settings that locate them.
const (
	EnvMongo      = emulator.EnvMongo
	EnvServiceBus = emulator.EnvServiceBus
	EnvBlob       = emulator.EnvBlob

	Topic        = emulator.Topic
	Subscription = emulator.Subscription
)

// Options select what to start. The zero value starts all three servers in this process, with the
// default entities.
type Options struct {
	emulator.Options

	// Azurite replaces the in-process blob server.
	Azurite bool
	// AzuriteDir is the folder of its installation; empty is tests/emulator/azurite above the
	// working directory.
	AzuriteDir string
}

// Stack is the set of servers.
type Stack struct {
	*emulator.Stack

	azurite  *azurite.Process
	proxy    net.Listener // adds the latency to Azurite, or has the requested port; otherwise nil
	endpoint string       // of the blob store, if that is Azurite
}

// New opens the ports, as [emulator.New] does. Azurite's process is started here, since its address
// is known only then; ctx bounds the start.
func New(ctx context.Context, o Options) (_ *Stack, err error) {
	o.NoBlob = o.Azurite
	s := &Stack{}
	if s.Stack, err = emulator.New(ctx, o.Options); err != nil {
		return nil, err
	}
	if o.Azurite {
		if err := s.startAzurite(ctx, o); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close frees what New opened, if Run is not called.
func (s *Stack) Close() error {
	errs := []error{s.Stack.Close()}
	if s.proxy != nil {
		errs = append(errs, s.proxy.Close())
	}
	if s.azurite != nil {
		errs = append(errs, s.azurite.Stop())
	}
	return errors.Join(errs...)
}

// Endpoint returns one of the settings by its name: [EnvMongo], [EnvServiceBus] or [EnvBlob].
func (s *Stack) Endpoint(name string) string {
	if s.azurite != nil && name == EnvBlob {
		return s.endpoint
	}
	return s.Stack.Endpoint(name)
}

// Env returns the settings of [emulator.Stack.Env] as KEY=VALUE, with the address of Azurite if it
// is used.
func (s *Stack) Env() []string { return s.andAzurite(s.Stack.Env()) }

// Settings returns those of Env and the entity of Service Bus that requires sessions.
func (s *Stack) Settings() []string { return s.andAzurite(s.Stack.Settings()) }

func (s *Stack) andAzurite(env []string) []string {
	if s.azurite != nil {
		env = append(env, EnvBlob+"="+s.endpoint)
	}
	return env
}

// Host returns the host:port of one of the settings, for a proxy between a service and its server.
func Host(endpoint string) string {
	for _, start := range []string{"BlobEndpoint=http://", "sb://", "mongodb://"} {
		if _, rest, found := strings.Cut(endpoint, start); found {
			return rest[:strings.IndexAny(rest+"/", "/;")]
		}
	}
	return ""
}

// Run serves until ctx ends, then returns nil; an error means that a server failed.
func (s *Stack) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Stack.Run(ctx) })
	if s.azurite != nil {
		group.Go(func() error { return s.runAzurite(ctx) })
	}
	return group.Wait()
}
