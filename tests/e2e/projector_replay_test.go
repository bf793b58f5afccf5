package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
)

// command runs one command of the projector's program, for a shape.
func (w *projectorWorld) command(s shape, args ...string) operated {
	w.Helper()
	return w.commandThrough(&plug{}, &plug{}, s, args...)
}

// commandThrough runs a command that is connected to the network by plugs.
func (w *projectorWorld) commandThrough(busPlug, mongoPlug *plug, s shape, args ...string) operated {
	w.Helper()
	cfg := w.config()
	opts := projector.Options{
		ServiceBus: &azservicebus.ClientOptions{
			NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return busPlug.dial(ctx, w.busNet)
			},
		},
		Mongo: func(o *options.ClientOptions) { o.SetDialer(dialer{mongoPlug, w.mongoNet}) },
	}
	// A write that is given up leaves a connection behind which the driver, when it disconnects, waits for without letting
	// virtual time pass.
	cfg.ApplyTimeout = 5 * time.Minute
	s.settings(nil)(&cfg, &opts)
	var out, errOut bytes.Buffer
	load := func() (projector.Config, error) { return cfg, cfg.Validate() }
	code := projector.Execute(w.Context(), args, load, opts, &out, &errOut, nil)
	w.Logf("$ projector %q → %d\n%s%s", args, code, out.String(), errOut.String())
	return operated{code, out.String(), errOut.String()}
}

// requireRight holds what is there against the events 1 to n, each applied once and in order.
func (w *projectorWorld) requireRight(s shape, aggregate string, events int) {
	w.Helper()
	require.Equal(w, events, s.applied(w, aggregate))
	require.Empty(w, w.parked(s.guards, aggregate))
	require.False(w, w.guard(s.guards, aggregate).Lookup("empty").Type != 0, "the document is still marked as a stub")
	if s.name == "mendable" {
		doc := w.timeline(aggregate)
		require.Equal(w, fmt.Sprintf("2026-01-01T00:00:%02dZ", events), doc.Last)
		require.Equal(w, "2026-01-01T00:00:01Z", doc.First, "what is set when the document is made was not set")
	}
}

// G5: what is mended is replayed: the events come in order, and what comes after them is applied as usual.
func TestG5ReplayAppliesWhatWaitsInOrder(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		positions := w.watch("timeline")
		p := w.start(s.settings(nil))
		for n := 1; n <= 5; n++ {
			eventType := "T"
			if n == 1 || n == 3 {
				eventType = "Poison"
			}
			w.publish(event("a", n, eventType))
			w.publish(event("b", n, "T"))
			w.publish(event("c", n, map[bool]string{true: "Poison", false: "T"}[n == 2]))
		}
		w.deadLettered(9)

		list := w.command(s, "parked", "list")
		require.Equal(w, 0, list.code)
		require.Regexp(w, `a +2000-01-01T00:00:\d\dZ +ProjectionFailed +`+event("a", 1, "").Position, list.out)
		show := w.command(s, "parked", "show", "a")
		require.Equal(w, 0, show.code)
		require.Contains(w, show.out, "5 events in the dead-letter queue")
		require.Contains(w, show.out, "projector parked drop 'a' --yes")

		still := w.command(s, "parked", "replay", "a")
		require.Equal(w, 1, still.code)
		require.Contains(w, still.out, "a: 0 events applied; it stays parked, because of message "+messageID(event("a", 1, "")))
		require.Empty(w, still.err)
		require.Equal(w, 9, w.bus.Stats(subPath).DeadLettered)

		s.mended.Store(true)
		replay := w.command(s, "parked", "replay", "a")
		require.Equal(w, 0, replay.code, replay.err)
		require.Equal(w, "a: 5 events applied; it is not parked\nremoved 5 of 5 messages from the dead-letter queue\n", replay.out)
		w.requireRight(s, "a", 5)
		require.Equal(w, []string{"c/2 ProjectionFailed", "c/3 AggregateParked", "c/4 AggregateParked", "c/5 AggregateParked"}, w.deadLetters())

		w.publish(event("a", 6, "T"))
		w.completed(5 + 1 + 1)
		w.requireRight(s, "a", 6)
		require.Equal(w, 1, s.applied(w, "c"))

		all := w.command(s, "parked", "replay", "--all")
		require.Equal(w, 0, all.code, all.err)
		w.requireRight(s, "c", 5)
		require.Empty(w, w.deadLetters())
		require.Equal(w, "no aggregate is parked\n", w.command(s, "parked", "list").out)
		require.Equal(w, "no aggregate is parked\n", w.command(s, "parked", "replay", "--all").out)
		_, err := p.end()
		require.NoError(w, err)
		if s.name == "mendable" {
			for id, seen := range positions() {
				require.IsNonDecreasing(w, seen, id) // ending a parking moves nothing
			}
		}
	})
}

// G5: dropping gives up the event in the way and keeps the rest.
func TestG5DropKeepsTheRest(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		w.publish(event("a", 1, "T"), event("a", 2, "Poison"), event("a", 3, "T"), event("a", 4, "Poison"), event("a", 5, "T"))
		w.deadLettered(4)
		w.publish(event("f", 1, "Poison"), event("f", 2, "T"))
		w.deadLettered(6)
		unreadable := w.encode(event("g", 2, "T"))
		unreadable.ApplicationProperties = nil
		w.publish(event("g", 1, "T"))
		w.send(unreadable, w.encode(event("g", 3, "T")))
		w.deadLettered(8)

		require.Equal(w, 2, w.command(s, "parked", "drop", "a").code)
		first := w.command(s, "parked", "drop", "a", "--yes")
		require.Equal(w, 1, first.code)
		require.Contains(w, first.out, "a: 1 events applied, the event in the way given up; it stays parked, because of message "+
			messageID(event("a", 4, "")))
		require.Equal(w, messageID(event("a", 4, "")), w.parked(s.guards, "a").MessageID)
		require.Equal(w, 2, s.applied(w, "a"))
		second := w.command(s, "parked", "drop", "a", "--yes")
		require.Equal(w, 0, second.code, second.err)
		require.Equal(w, 3, s.applied(w, "a"))

		// The very first event: the document is made by the second.
		require.Equal(w, 0, w.command(s, "parked", "drop", "f", "--yes").code)
		require.Equal(w, 1, s.applied(w, "f"))
		require.Empty(w, w.parked(s.guards, "f"))

		// Nobody knows where the unreadable one belongs; it is removed, and the version it may have had is not missed.
		stuck := w.command(s, "parked", "drop", "g", "--yes")
		require.Equal(w, 1, stuck.code)
		require.Contains(w, stuck.out, "VersionGap")
		require.Equal(w, 0, w.command(s, "parked", "drop", "g", "--yes").code)
		require.Equal(w, 2, s.applied(w, "g"))

		require.Empty(w, w.deadLetters())
		w.publish(event("a", 6, "T"), event("a", 7, "T"))
		w.completed(1 + 1 + 2)
		require.Equal(w, 5, s.applied(w, "a"))
		_, err := p.end()
		require.NoError(w, err)
	})
}

// G6: what nobody can read and somebody else has locked is not passed over: once its aggregate is not parked any more, no command
// would find it again.
func TestG6DropWaitsForWhatSomebodyElseHasLocked(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		unreadable := w.encode(event("a", 2, "T"))
		unreadable.ApplicationProperties = nil
		w.publish(event("a", 1, "T"))
		w.send(unreadable)
		w.deadLettered(1)
		receiver, err := w.busOwn.NewReceiverForSubscription(topic, subscription, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
		require.NoError(w, err)
		_, err = receiver.ReceiveMessages(w.Context(), 1, nil)
		require.NoError(w, err)

		refused := w.command(s, "parked", "drop", "a", "--yes")
		require.Equal(w, 1, refused.code)
		require.Contains(w, refused.err, "somebody else has locked a message of the dead-letter queue")
		require.NotEmpty(w, w.parked(s.guards, "a"))
		w.pass(time.Minute) // the lock runs out
		require.Equal(w, 0, w.command(s, "parked", "drop", "a", "--yes").code)
		require.Empty(w, w.parked(s.guards, "a"))
		require.Empty(w, w.deadLetters())
		require.NoError(w, receiver.Close(w.Context()))
		_, err = p.end()
		require.NoError(w, err)
	})
}

// G5: killed at any point, a replay can be given again, and nothing is lost, doubled or applied out of order; a projector runs
// beside it all the time.
func TestG5ReplayKilledAnywhere(t *testing.T) {
	step := 3 // with 1 it passes as well, and takes half a minute
	if testing.Short() {
		step = 11
	}
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			for n, finished := 1, false; !finished; n += step {
				inBubble(t, func(w *projectorWorld) {
					s.mended.Store(false)
					p := w.start(s.settings(nil))
					w.publish(event("x", 1, "Poison"))
					w.deadLettered(1)
					w.publish(event("a", 1, "Poison"), event("a", 2, "T"), event("a", 3, "T"))
					w.deadLettered(4)
					s.mended.Store(true)
					busPlug, mongoPlug := &plug{}, &plug{}
					kill := lay(n, busPlug, mongoPlug)
					w.commandThrough(busPlug, mongoPlug, s, "parked", "replay", "a")
					finished = !kill.hasBlown()
					w.publish(event("a", 4, "T"))
					w.eventually("the event is applied or set aside", func() bool {
						stats := w.bus.Stats(subPath)
						return stats.Active == 0 && stats.Locked == 0
					})
					w.pass(time.Minute) // locks run out

					again := w.command(s, "parked", "replay", "a")
					require.Equal(w, 0, again.code, "after %d writes: %s", n, again.err)
					w.requireRight(s, "a", 4)
					require.Equal(w, []string{"x/1 ProjectionFailed"}, w.deadLetters(), "after %d writes", n)
					require.NotEmpty(w, w.parked(s.guards, "x"))
					w.publish(event("a", 5, "T"))
					w.eventually("life goes on", func() bool { return s.applied(w, "a") == 5 })
					_, err := p.end()
					require.NoError(w, err)
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// Two people replay the same aggregate at once: one waits for the other, and finds nothing left to do.
func TestG5TwoReplaysAtOnce(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		w.publish(event("a", 1, "Poison"), event("a", 2, "T"), event("a", 3, "T"))
		w.deadLettered(3)
		_, err := p.end()
		require.NoError(w, err)
		s.mended.Store(true)
		w.block("update", 1, 10*time.Second)
		both := make(chan operated, 2)
		for range cap(both) {
			go func() { both <- w.command(s, "parked", "replay", "a") }()
		}
		for range cap(both) {
			replay := <-both
			require.Equal(w, 0, replay.code, replay.err)
		}
		w.requireRight(s, "a", 3)
		require.Empty(w, w.deadLetters())
	})
}

// G5: a replay does not end a parking behind the back of a projector that sets events aside meanwhile.
func TestG5ReplayNoticesWhatIsSetAsideMeanwhile(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		w.publish(event("a", 1, "Poison"), event("a", 2, "T"))
		w.deadLettered(2)
		w.pass(10 * time.Second) // the session is given back
		s.mended.Store(true)
		// The replay is held up before its first write; meanwhile its lock is lost, and a projector takes the session.
		command, done := "update", make(chan operated, 1)
		w.block(command, 1, 40*time.Second)
		go func() { done <- w.command(s, "parked", "replay", "a") }()
		w.eventually("the replay has the session", func() bool { return w.bus.Stats(subPath).HeldSessions == 1 })
		w.pass(time.Second)
		w.bus.ExpireLocks(subPath)
		w.publish(event("a", 3, "T"))
		w.deadLettered(3)
		replay := <-done
		require.Equal(w, 0, replay.code, replay.err)
		w.requireRight(s, "a", 3)
		require.Empty(w, w.deadLetters())
		_, err := p.end()
		require.NoError(w, err)
	})
}

// A projector that holds the session and does not give it back is named, and waited for no longer than was asked.
func TestReplayWaitsForTheSession(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		s := shapes()[0]
		p := w.start(func(c *projector.Config, o *projector.Options) {
			s.settings(nil)(c, o)
			c.SessionIdle, c.SessionMaxHold = 20*time.Second, 20*time.Second
		})
		w.pass(30 * time.Second) // a worker has looked for a session in vain, so that one without messages is kept
		w.publish(event("a", 1, "Poison"))
		w.deadLettered(1)
		s.mended.Store(true)
		busy := w.command(s, "parked", "replay", "a", "--wait", "5s")
		require.Equal(w, 1, busy.code)
		require.Contains(w, busy.err, "a projector holds the session a, and did not release it in 5s")
		require.Equal(w, 0, w.command(s, "parked", "replay", "a").code)
		w.requireRight(s, "a", 1)
		_, err := p.end()
		require.NoError(w, err)
	})
}

// G5: many dead letters of others lie before those of the aggregate, and stay where they are.
func TestG5ReplayLeavesOthersInTheirPlace(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		s := shapes()[0]
		p := w.start(s.settings(nil))
		const others = 700
		w.publish(event("o", 1, "Poison"))
		w.deadLettered(1)
		for n := 2; n <= others; n += 100 {
			batch := make([]*azservicebus.Message, 0, 100)
			for i := n; i < min(n+100, others+1); i++ {
				batch = append(batch, w.encode(event("o", i, "T")))
			}
			w.send(batch...)
		}
		w.deadLettered(others)
		w.publish(event("a", 1, "Poison"), event("a", 2, "T"))
		w.deadLettered(others + 2)
		before := w.deadLetters()
		s.mended.Store(true)
		replay := w.command(s, "parked", "replay", "a")
		require.Equal(w, 0, replay.code)
		require.Contains(w, replay.out, "removed 2 of 2 messages")
		require.Equal(w, before[:others], w.deadLetters())
		require.Zero(w, w.bus.Stats(subPath).Locked)

		all := w.command(s, "parked", "replay", "o")
		require.Equal(w, 0, all.code)
		require.Equal(w, int64(others), w.timeline("o").Events)
		require.Empty(w, w.deadLetters())
		_, err := p.end()
		require.NoError(w, err)
	})
}

// The event that parked the aggregate was removed by somebody: to go on without it must be said.
func TestG6ReplayDoesNotGoOnWithoutThePoison(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		w.publish(event("a", 1, "T"), event("a", 2, "Poison"), event("a", 3, "T"))
		w.deadLettered(2)
		receiver, err := w.busOwn.NewReceiverForSubscription(topic, subscription,
			&azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		require.NoError(w, err)
		_, err = receiver.ReceiveMessages(w.Context(), 1, nil)
		require.NoError(w, err)
		require.NoError(w, receiver.Close(w.Context()))
		s.mended.Store(true)
		replay := w.command(s, "parked", "replay", "a")
		require.Equal(w, 1, replay.code)
		require.Contains(w, replay.err, "somebody removed it. To go on without it: projector parked drop 'a' --yes")
		require.NotEmpty(w, w.parked(s.guards, "a"))
		require.Equal(w, 0, w.command(s, "parked", "drop", "a", "--yes").code)
		require.Equal(w, 2, s.applied(w, "a"))
		_, err = p.end()
		require.NoError(w, err)
	})
}

// Dead letters of an aggregate that nobody parked are not touched.
func TestReplayOfWhatIsNotParked(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		s := shapes()[0]
		replay := w.command(s, "parked", "replay", "nobody")
		require.Equal(w, 0, replay.code)
		require.Equal(w, "nobody: 0 events applied; it is not parked\n", replay.out)
		show := w.command(s, "parked", "show", "nobody")
		require.Equal(w, 1, show.code)
		require.Equal(w, "projector: nobody is not parked; `projector parked list` shows those that are\n", show.err)
		n, err := w.client.Database(readModel).Collection("timeline").CountDocuments(w.Context(), bson.D{})
		require.NoError(w, err)
		require.Zero(w, n)
	})
}
