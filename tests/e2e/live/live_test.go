package live

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// Two streams in each producer, several lanes, several sessions on a connection, and events too
// large for a message, while leaders and projectors are killed, hand over and come back.
func TestG1G2G3G4ServicesAreKilledAndHandOver(t *testing.T) {
	t.Parallel()
	inWorld(t, settings{Collections: []string{"events", "returns"}, Projection: timeline, Claims: true, Lanes: 4, Sessions: 8, Connections: 2}, func(w *world) {
		w.serve(2, 2)
		w.load("events", each(counted("event", 10, w.random()), func(e *workload.Event) {
			if e.Version%20 == 3 {
				e.Data = fmt.Appendf(nil, `{"note":%q}`, strings.Repeat("long ", 60_000)) // too large for a message
			}
		}))
		w.load("returns", counted("return", 10, w.random()))
		w.operate()
		w.moveOn()
		for n, take := range []func(*service){(*service).kill, (*service).end} {
			stream := w.streams()[n]
			leader, epoch := w.leader(stream), w.checkpoints.Last(stream).Epoch
			take(leader)
			w.until("another replica leads", func() bool { return w.checkpoints.Last(stream).Epoch > epoch })
			w.moveOn()
			leader.start()

			holder := w.projectors[n]
			take(holder)
			w.moveOn()
			holder.start()
		}
		w.moveOn()
		w.trace("stop all of them at once")
		for _, s := range w.services {
			s.now.ask()
		}
		for _, s := range w.services {
			s.end()
			s.start()
		}
		w.moveOn()
		w.rest()
		w.ask()
	})
}

// Aggregates share sessions, and an event writes several documents in a transaction, while
// connections are cut, servers step down, and locks or replies are lost.
func TestG1G2G3G4ConnectionsAreCutAndServersDisturbed(t *testing.T) {
	t.Parallel()
	inWorld(t, settings{
		Collections: []string{"events"}, Projection: orders, SessionKey: envelope.Buckets(12), Lanes: 8, Sessions: 16, Connections: 2,
	}, func(w *world) {
		w.serve(2, 2)
		w.load("events", workload.Orders(w.random().Uint64()))
		w.operate()
		w.moveOn()
		chance := w.random()
		stream, bus, route := w.streams()[0], w.stack.ServiceBus, w.stack.Route
		leader := func() *service { return w.leader(stream) }
		for _, at := range []struct {
			of     func() *service
			server wire.Server
		}{
			{leader, wire.ServiceBus},
			{func() *service { return w.projectors[0] }, wire.ServiceBus},
			{leader, wire.Mongo},
			{func() *service { return w.projectors[1] }, wire.Mongo},
			{leader, wire.Blob},
		} {
			s, n := at.of(), chance.IntN(20)
			w.trace("cut %s off from %s after %d messages", s.now.name, at.server, n)
			w.lose(s, at.server, func(u wire.Unit) bool {
				if !u.Reply {
					n--
				}
				return n < 0
			})
			w.moveOn()
		}
		epoch := w.checkpoints.Last(stream).Epoch
		w.succeeds("producer", "lease break --stream "+stream)
		w.until("a replica leads with the next epoch", func() bool { return w.checkpoints.Last(stream).Epoch > epoch })
		w.moveOn()
		for _, d := range append([]disturbance{
			{"locks are lost", func() { bus.ExpireLocks(route.Out()) }},
			{"every connection to Service Bus is cut", bus.DropConnections},
			{"links are detached", func() { bus.DetachLinks(route.In()); bus.DetachLinks(route.Out()) }},
			{"acknowledgements of sends are lost", func() { bus.LoseAcknowledgements(2) }},
			{"sends are refused", func() { require.NoError(w, bus.RefuseSends(route.In(), 2)) }},
			{"Blob storage is busy", func() { w.stack.Blob.Fail(http.StatusServiceUnavailable, 300*time.Millisecond) }},
		}, w.mongoDisturbances()...) {
			w.disturb(d)
			w.moveOn()
		}
		bad := servicebus.Fault{Drop: 0.01, Busy: 0.01, LoseAck: 0.01, Detach: 0.01}
		end := bus.Inject(servicebus.Faults{Seed: chance.Uint64(), Send: bad, Receive: bad, Settle: bad, Accept: bad, Manage: bad, LoseLock: 0.01})
		w.trace("every operation of Service Bus may fail")
		w.moveOn()
		w.moveOn()
		end()
		w.moveOn()
		w.rest()
		w.until("Blob storage is no longer busy", func() bool {
			code, _ := w.command("producer", "status", "--stream", stream)
			return code == commandline.ExitOK
		})
		w.ask()
	})
}

// Three aggregates have an event that cannot be applied, the first of them at its very beginning.
// They are parked while the others continue; then one event is dropped and the rest is replayed,
// beside running projectors.
func TestG5G6PoisonIsParkedDroppedAndReplayed(t *testing.T) {
	t.Parallel()
	var fixed atomic.Bool
	registry, err := projection.NewRegistry(brittle{fixed: &fixed})
	require.NoError(t, err)
	inWorld(t, settings{Collections: []string{"events"}, Projection: timeline, Projections: registry, Lanes: 4, Sessions: 8, Connections: 1}, func(w *world) {
		w.serve(1, 2)
		w.load("events", each(counted("event", 8, w.random()), func(e *workload.Event) {
			if e.Version == sick[e.AggregateID] {
				e.Type = poison
			}
		}))
		w.operate()
		w.flow("the first event behind each poison event is dead-lettered, too", func() bool {
			behind := map[string]int{}
			for _, a := range w.aside() {
				behind[a.Session]++
			}
			for aggregate := range sick { // of each: one aggregate's next event may come much later
				if behind[aggregate] < 2 {
					return false
				}
			}
			return true
		})
		for n, d := range []disturbance{
			{"locks are lost", func() { w.stack.ServiceBus.ExpireLocks(w.stack.Route.Out()) }},
			{"links are detached", func() { w.stack.ServiceBus.DetachLinks(w.stack.Route.Out()) }},
		} {
			w.disturb(d)
			w.moveOn()
			w.projectors[n].kill()
			w.moveOn()
			w.projectors[n].start()
		}
		w.rest()
		w.ask()
		w.recordAside()

		w.succeeds("projector", "parked show event-1 --json")
		w.drop("event-0")
		fixed.Store(true)
		w.enough.Store(false)
		w.load("events", counted("other", 8, w.random()))
		w.operate()
		w.moveOn()
		w.replay()
		w.rest()
		w.ask()
		w.run.Left = w.aside()
	})
}
