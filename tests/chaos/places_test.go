package chaos

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/cable"
	"github.com/sluice-cdc/sluice/tests/chaos/internal/netns"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// slot is the slot of one replica, and its network.
type slot struct {
	*child.Slot
	proxy *wire.Proxy
	cable *cable.Cable // nil: the slot has the machine's network
	weather
}

// apart puts a slot into a network namespace of its own, with a cable to the servers' namespace.
// The slot's proxy listens there.
func (s *slot) apart(ctx context.Context, t *testing.T, servers *netns.Namespace, number int, seed uint64) (wire.Listener, error) {
	own := netns.ForTest(ctx, t, s.Name)
	var err error
	if s.cable, err = cable.Plug(ctx, own, servers, number, seed<<8+uint64(number)); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := s.cable.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Enter, s.Dial = own.Enter(), own.Dial
	return func(ctx context.Context, server wire.Server) (net.Listener, error) {
		return servers.Listen(ctx, "tcp", s.addr(server).String()+":0")
	}, nil
}

// fill creates the slots of the services and starts nothing.
func (r *ring) fill(ctx context.Context) error {
	logs := r.TempDir()
	var servers *netns.Namespace
	if r.options.apart {
		servers = netns.ForTest(ctx, r.T, "servers")
	}
	for _, service := range []string{"producer", "producer", "projector", "projector"} {
		name := fmt.Sprintf("%s-%d", service, 1+len(r.slots())%2)
		place := &slot{Slot: &child.Slot{Name: name, LogDir: logs, OnEvent: func(event string) { r.trace.add("%s", event) }}}
		at := wire.Loopback
		if servers != nil {
			var err error
			if at, err = place.apart(ctx, r.T, servers, len(r.slots()), r.options.seed); err != nil {
				return err
			}
		}
		var err error
		place.proxy, err = wire.Listen(ctx, name, wire.Addrs{
			Mongo: stack.Host(r.stack.Endpoint(emulator.EnvMongo)), ServiceBus: stack.Host(r.stack.Endpoint(emulator.EnvServiceBus)), Blob: r.options.blobURL,
		}, at, &r.checkpoints, r.lease.Client)
		if err != nil {
			return err
		}
		addrs := place.proxy.Addrs()
		env := []string{
			"HTTP_ADDR=127.0.0.1:0", "LOG_LEVEL=info", "SERVICE_BUS_TOPIC=" + emulator.Topic,
			// The connection is direct, or the driver would use the address that the server
			// reports, which is not that of the proxy.
			emulator.EnvMongo + "=mongodb://" + addrs.Mongo + "/?directConnection=true",
			emulator.EnvServiceBus + "=" + servicebus.ConnectionString(addrs.ServiceBus),
		}
		if service == "producer" {
			place.Program = r.options.producer
			place.Env = append(append(env, emulator.EnvBlob+"="+blob.ConnectionString(addrs.Blob), "BLOB_CONTAINER="+r.options.name,
				"MONGODB_DATABASE=shop", "MONGODB_COLLECTION="+r.options.collection(), "START_FROM=latest"), r.options.times...)
			if r.options.inMongo {
				place.Env = slices.DeleteFunc(place.Env, func(s string) bool { return strings.HasPrefix(s, "LEASE_DURATION=") }) // such a lease has none
				place.Env = append(place.Env, "CHECKPOINT_STORE=mongodb", "CHECKPOINT_MONGODB_URI=mongodb://"+addrs.Mongo+"/?directConnection=true", "CHECKPOINT_MONGODB_DATABASE=sluice")
			}
			if r.options.packs() {
				place.Env = append(place.Env, "PACK=auto", "SESSION_KEY="+r.options.sessionKey().String())
			}
			if d := r.options.documents; d != nil {
				place.Env = append(append(place.Env, "AGGREGATE_ID_PATH="+d.aggregate, "OPERATIONS=insert,update,replace,delete"), d.settings...)
			} else {
				place.Env = append(place.Env, "OPERATIONS=insert")
			}
			r.producers = append(r.producers, place)
			continue
		}
		place.Program = r.options.projector
		place.Env = append(env, "SERVICE_BUS_SUBSCRIPTION="+emulator.Subscription, "READ_MODEL_DATABASE=readmodel", "PROJECTION="+r.options.projection(),
			"SESSION_IDLE=500ms", "MAX_SESSIONS=16", "SERVICE_BUS_CONNECTIONS=2", "SESSION_RECEIVER="+r.options.receiver())
		if r.options.program {
			url, err := r.besideProgram(ctx, fmt.Sprintf("program-%d", 1+len(r.projectors)), logs)
			if err != nil {
				return err
			}
			place.Env = append(place.Env, "PROJECTION_URL="+url)
		}
		r.projectors = append(r.projectors, place)
	}
	return nil
}
