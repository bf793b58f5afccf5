package projector_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// directly makes a projector accept sessions over AMQP and in no other way, on one connection.
func directly(c *projector.Config, _ *projector.Options) {
	c.SessionReceiver, c.Connections = "direct", 1
}

// gaveUp is logged by a projector that accepts sessions through the SDK from then on.
const gaveUp = "accepting them through the SDK"

// A broker that knows the session filter grants a session to a receiver that has no other way.
func TestProjectorAcceptsSessionsDirectly(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(directly)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		p.MustEnd()
		require.NotContains(w, p.Log.Text(), `"level":"WARN"`)
	})
}

// Whatever a broker does instead of answering requests that it does not understand, the projector
// changes to the SDK.
func TestProjectorFallsBackToTheSDKWhenRequestsAreNotAnswered(t *testing.T) {
	for name, answer := range map[string]servicebus.AcceptAnswer{
		"nothing": servicebus.AnswerNothing, "what ends the connection": servicebus.AnswerBare,
	} {
		subtest(t, name, func(w *world.World) {
			w.Bus.AnswerAccepts(answer)
			publish(w, event("a", 1, "T"))
			p := w.StartProjector(nil)
			for n := 0; !strings.Contains(p.Log.Text(), gaveUp); n++ {
				require.Less(w, n, 10, "it does not turn to the SDK")
				w.Pass(time.Minute)
			}
			w.Bus.AnswerAccepts(servicebus.AnswerAsUsual)
			w.Eventually("it is applied", func() bool {
				w.Pass(time.Second)
				return w.TimelineOf("a").Events == 1
			})
		})
	}
}

// Connections that a network or a broker ends, all at once and before any session was granted, do
// not count against the requests.
func TestProjectorKeepsAMQPWhenConnectionsEnd(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(nil)
		for range 2 {
			w.Pass(20 * time.Second) // all workers ask
			w.Bus.DropConnections()
		}
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		p.MustEnd()
		require.NotContains(w, p.Log.Text(), gaveUp)
	})
}

// A refusal without an error means that there is no session: the connection is kept.
func TestProjectorKeepsItsConnectionWhenThereIsNoSession(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.Bus.AnswerAccepts(servicebus.AnswerNoReason)
		var count frames
		p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
			directly(c, o)
			count.countOf(o)
		})
		w.Pass(10 * time.Second)
		before := count.dials.Load()
		w.Pass(10 * time.Minute) // ten accepts of each worker
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		require.Equal(w, before, count.dials.Load())
		p.MustEnd()
		require.NotContains(w, p.Log.Text(), "dependency fails")
	})
}

// If the broker detaches a link for management requests, as it does with unused ones, no session
// loses its lock.
func TestProjectorKeepsASessionWhoseManagementLinkIsDetached(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
			directly(c, o)
			c.ApplyTimeout = 5 * time.Minute
		})
		w.DelayMongo(1, 2*world.LockDuration, "update")
		publish(w, event("a", 1, "T"))
		w.Pass(world.LockDuration * 3 / 4) // the lock was renewed, over links that are kept
		require.Equal(w, 2, w.Bus.DetachLinks(world.SubscriptionPath+"/$management"))
		w.Completed(1)
		p.MustEnd()
		require.NotContains(w, p.Log.Text(), "session lock lost")
	})
}

// The locks of all sessions of a connection are renewed in time, however slow the broker's answers
// are.
func TestProjectorRenewsManyLocksOverASlowConnection(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		const sessions = 32
		p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
			directly(c, o)
			c.MaxSessions, c.Connections, c.ApplyTimeout = sessions, 1, 5*time.Minute
		})
		w.Bus.Inject(servicebus.Faults{Manage: servicebus.Fault{Delay: time.Second}})
		w.DelayMongo(sessions, world.LockDuration*3/2, "update")
		for n := range sessions {
			publish(w, event(fmt.Sprint("a", n), 1, "T"))
		}
		w.Completed(sessions)
		p.MustEnd()
		require.NotContains(w, p.Log.Text(), "session lock lost")
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
	})
}

// While the broker answers that it is busy, the workers of a replica ask rarely, and together;
// afterwards they continue soon.
func TestProjectorBacksOffFromABusyBroker(t *testing.T) {
	eachReceiver(t, func(w *world.World, receiver string) {
		const workers = 32
		lift := w.Bus.Inject(servicebus.Faults{Accept: servicebus.Fault{Busy: 1}})
		w.StartProjector(func(c *projector.Config, _ *projector.Options) {
			c.SessionReceiver, c.MaxSessions, c.Connections = receiver, workers, 1
		})
		w.Pass(time.Minute)
		before := w.Bus.Operations()[servicebus.OperationAccept]
		w.Pass(10 * time.Minute)
		require.Less(w, w.Bus.Operations()[servicebus.OperationAccept]-before, 5*10*60/8, "five requests each 8 s: the SDK asks four times")
		lift()
		publish(w, event("a", 1, "T"))
		published := time.Now()
		w.Completed(1)
		require.Less(w, time.Since(published), 20*time.Second)
	})
}

// A projector that stops does not wait until everything that it sets aside is in the dead-letter
// queue.
func TestG5AStopDoesNotWaitForManyDeadLetters(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		const events, answer = 300, 500 * time.Millisecond
		s.adjust = func(c *projector.Config) { c.ReceiveBatch, c.ShutdownTimeout = events, 20*time.Second }
		var all []envelope.Change
		for n := 1; n <= events; n++ {
			all = append(all, event("a", n, map[bool]string{true: "Poison", false: "T"}[n == 1]))
		}
		publish(w, all...)
		lift := w.Bus.Inject(servicebus.Faults{Settle: servicebus.Fault{Delay: answer}})
		p := w.StartProjector(s.settings)
		deadLettered(w, 10)
		stopped := time.Now()
		p.MustEnd()
		require.Less(w, time.Since(stopped), 5*time.Second)
		require.Less(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered, events/2)
		lift()
		p = w.StartProjector(s.settings)
		deadLettered(w, events)
		p.MustEnd()
		var wanted []string
		for n := 1; n <= events; n++ {
			wanted = append(wanted, fmt.Sprintf("a/%d %s", n, map[bool]string{true: "ProjectionFailed", false: "AggregateParked"}[n == 1]))
		}
		require.Equal(w, wanted, deadLetters(w))
	})
}

// An AMQP session that the broker has ended is not used any more, and the others' connection is
// kept: no worker is lost.
func TestProjectorReusesNoAMQPSessionThatTheBrokerEnded(t *testing.T) {
	for name, limit := range map[string]int{"one": 1, "most": 7} {
		subtest(t, name, func(w *world.World) {
			const workers, slow = 8, 5 * time.Second
			w.StartProjector(directly)
			publish(w, event("a", 1, "T"))
			w.Completed(1)
			w.Pass(10 * time.Second) // all workers wait for a session, on AMQP sessions that had one before
			require.NotZero(w, w.Bus.EndSessions(world.SubscriptionPath, "amqp:internal-error", limit))
			w.Pass(10 * time.Second)
			for round := range 3 {
				w.DelayMongo(2*workers, slow, "update")
				for n := range 2 * workers {
					publish(w, event(fmt.Sprint("b", round, "-", n), 1, "T"))
				}
				began := time.Now() // the first send after an hour may be retried
				w.Completed(1 + 2*workers*(round+1))
				require.Less(w, time.Since(began), 3*slow, "not all workers work")
				w.Pass(time.Hour)
			}
		})
	}
}

// A broker that ends the link of a session instead of sending its messages is not asked for the
// session as fast as the network permits.
func TestProjectorBacksOffFromABrokerThatEndsLinks(t *testing.T) {
	eachReceiver(t, func(w *world.World, receiver string) {
		const outage = time.Minute
		w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.SessionReceiver = receiver })
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		lift := w.Bus.Inject(servicebus.Faults{Accept: servicebus.Fault{Delay: 10 * time.Millisecond}, Receive: servicebus.Fault{End: 1}})
		publish(w, event("a", 2, "T"))
		before := w.Bus.Operations()[servicebus.OperationAccept]
		w.Pass(outage)
		require.Less(w, w.Bus.Operations()[servicebus.OperationAccept]-before, int(outage/time.Second))
		lift()
		began := time.Now()
		w.Completed(2)
		require.Less(w, time.Since(began), 5*time.Second)
	})
}

// The memory for released sessions is bounded: go-amqp keeps each unsettled delivery as long as its
// AMQP session lasts.
func TestProjectorEndsHeavilyUsedAMQPSessions(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		const aggregates, links = 1200, 300 // an AMQP session has fewer
		var count frames
		w.StartProjector(func(c *projector.Config, o *projector.Options) {
			directly(c, o)
			c.MaxSessions = 1
			count.countOf(o)
		})
		publish(w, event("first", 1, "T"))
		w.Completed(1)
		before := count.begins.Load()
		for n := range aggregates {
			publish(w, event(fmt.Sprint("a", n), 1, "T"))
		}
		w.Completed(1 + aggregates)
		require.GreaterOrEqual(w, count.begins.Load()-before, int64(aggregates/links))
	})
}

// A session that gives way to others after SESSION_MAX_HOLD does so after everything received of it
// is applied: otherwise the broker would send a batch for nothing in each hold.
func TestProjectorAppliesReceivedMessagesBeforeASessionIsReleased(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		const aggregates, events, batch = 3, 60, 10
		publish(w, rounds(aggregates, 1, events)...)
		w.DelayMongo(aggregates*events, 1100*time.Millisecond, "update")
		var count frames
		w.StartProjector(func(c *projector.Config, o *projector.Options) {
			directly(c, o)
			c.MaxSessions, c.ReceiveBatch, c.SessionIdle, c.SessionMaxHold = 1, batch, time.Second, 3*time.Second
			count.countOf(o)
		})
		w.Completed(aggregates * events)
		require.Less(w, count.transfers.Load(), int64(aggregates*events+batch), "messages were sent more than once") // others are answers
	})
}

// frames counts connections of a projector to Service Bus, and their frames.
type frames struct {
	dials             atomic.Int64
	begins, transfers atomic.Int64 // sent and received
}

// countOf counts the frames of a projector's connections.
func (f *frames) countOf(o *projector.Options) {
	dial := o.ServiceBus.NewWebSocketConn
	o.ServiceBus.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		f.dials.Add(1)
		c, err := dial(ctx, args)
		return &framedConn{Conn: c, count: f}, err
	}
}

type framedConn struct {
	net.Conn
	count   *frames
	in, out []byte // the received parts of the next frame
}

func (c *framedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in = performatives(append(c.in, b[:n]...), 0x14, &c.count.transfers)
	return n, err
}

func (c *framedConn) Write(b []byte) (int, error) {
	c.out = performatives(append(c.out, b...), 0x11, &c.count.begins)
	return c.Conn.Write(b)
}

// performatives counts the frames that have a descriptor, and returns what follows the last whole
// frame.
func performatives(b []byte, descriptor byte, count *atomic.Int64) []byte {
	for len(b) >= 8 {
		size := 8 // of a protocol header
		if !bytes.HasPrefix(b, []byte("AMQP")) {
			size = int(binary.BigEndian.Uint32(b))
		}
		if len(b) < size {
			break
		}
		if bytes.HasPrefix(b[8:size], []byte{0x00, 0x53, descriptor}) {
			count.Add(1)
		}
		b = b[size:]
	}
	return b
}
