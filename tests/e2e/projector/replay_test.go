package projector_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/terminal"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// operate runs one command of the projector's program, for a shape.
func operate(w *world.World, s shape, args ...string) world.Operated {
	w.Helper()
	return operateThrough(w, &world.Plug{}, &world.Plug{}, s, args...)
}

// operateThrough runs a command that is connected to the network by plugs.
func operateThrough(w *world.World, busPlug, mongoPlug *world.Plug, s shape, args ...string) world.Operated {
	w.Helper()
	cfg := w.ProjectorConfig()
	opts := projector.Options{
		ServiceBus: world.BusOptions(busPlug.Dialer(w.BusNet)),
		Mongo:      world.MongoOptions(mongoPlug.Dialer(w.MongoNet)),
	}
	// A write that is given up leaves a connection for which the driver waits when it disconnects,
	// without letting virtual time pass.
	cfg.ApplyTimeout = 5 * time.Minute
	s.settings(&cfg, &opts)
	var out, errOut bytes.Buffer
	load := func() (projector.Config, error) { return cfg, cfg.Validate() }
	code := projector.Execute(w.Context(), args, load, opts, &out, &errOut, nil)
	w.Logf("$ projector %q → %d\n%s%s", args, code, out.String(), errOut.String())
	return world.Operated{Code: code, Out: out.String(), Err: errOut.String()}
}

// exits requires the exit code of a command, and returns the command's outcome.
func exits(w *world.World, code int, done world.Operated) world.Operated {
	w.Helper()
	require.Equal(w, code, done.Code, done.Out+done.Err)
	return done
}

// requireRight requires that the events 1 to n were each applied once and in order.
func requireRight(w *world.World, s shape, aggregate string, events int) {
	w.Helper()
	require.Equal(w, events, s.applied(w, aggregate))
	require.Empty(w, parked(w, s.guards, aggregate))
	require.False(w, guard(w, s.guards, aggregate).Lookup("empty").Type != 0, "the document is still marked as a stub")
	if s.name == "repairable" {
		doc := w.TimelineOf(aggregate)
		require.Equal(w, fmt.Sprintf("2026-01-01T00:00:%02dZ", events), doc.Last)
		require.Equal(w, "2026-01-01T00:00:01Z", doc.First, "what is set when the document is made was not set")
	}
}

// G5: a replay after the fix applies the events in order, and what comes after them is applied as
// usual.
func TestG5ReplayAppliesWhatWaitsInOrder(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		positions := watch(w, "timeline")
		p := w.StartProjector(s.settings)
		for n := 1; n <= 5; n++ {
			eventType := "T"
			if n == 1 || n == 3 {
				eventType = "Poison"
			}
			publish(w, event("a", n, eventType))
			publish(w, event("b", n, "T"))
			publish(w, event("c", n, map[bool]string{true: "Poison", false: "T"}[n == 2]))
		}
		deadLettered(w, 9)

		list := exits(w, 0, operate(w, s, "parked", "list"))
		require.Regexp(w, `a +2000-01-01T00:00:\d\dZ +ProjectionFailed +`+event("a", 1, "").Position, list.Out)
		show := exits(w, 0, operate(w, s, "parked", "show", "a"))
		require.Contains(w, show.Out, "5 events in the dead-letter queue")
		require.Contains(w, show.Out, "projector parked drop --yes --message "+messageID(event("a", 1, ""))+" -- a")

		still := exits(w, 1, operate(w, s, "parked", "replay", "a"))
		require.Contains(w, still.Out, "a: 0 events applied; it stays parked: ProjectionFailed: ")
		require.Contains(w, still.Out, "(message "+terminal.Shorten(messageID(event("a", 1, "")))+", at position ", "the reason stands before identifiers")
		require.Empty(w, still.Err)
		require.Equal(w, 9, w.Bus.Stats(world.SubscriptionPath).DeadLettered)

		s.fixed.Store(true)
		replay := exits(w, 0, operate(w, s, "parked", "replay", "a"))
		require.Equal(w, "a: 5 events applied; it is not parked\nremoved 5 of 5 messages from the dead-letter queue\n", replay.Out)
		requireRight(w, s, "a", 5)
		require.Equal(w, []string{"c/2 ProjectionFailed", "c/3 AggregateParked", "c/4 AggregateParked", "c/5 AggregateParked"}, deadLetters(w))

		publish(w, event("a", 6, "T"))
		w.Completed(5 + 1 + 1)
		requireRight(w, s, "a", 6)
		require.Equal(w, 1, s.applied(w, "c"))

		exits(w, 0, operate(w, s, "parked", "replay", "--all"))
		requireRight(w, s, "c", 5)
		require.Empty(w, deadLetters(w))
		require.Equal(w, "no aggregate is parked\n", operate(w, s, "parked", "list").Out)
		require.Equal(w, "no aggregate is parked\n", operate(w, s, "parked", "replay", "--all").Out)
		p.MustEnd()
		if s.name == "repairable" {
			for id, seen := range positions() {
				require.IsNonDecreasing(w, seen, id) // ending a parking moves nothing
			}
		}
	})
}

// G5: a drop removes the blocking event and keeps the rest.
func TestG5DropKeepsTheRest(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 2, "Poison"), event("a", 3, "T"), event("a", 4, "Poison"), event("a", 5, "T"))
		deadLettered(w, 4)
		publish(w, event("f", 1, "Poison"), event("f", 2, "T"))
		deadLettered(w, 6)
		unreadable := encode(w, event("g", 2, "T"))
		unreadable.ApplicationProperties = nil
		publish(w, event("g", 1, "T"))
		send(w, unreadable, encode(w, event("g", 3, "T")))
		deadLettered(w, 8)

		require.Equal(w, 2, operate(w, s, "parked", "drop", "a").Code)
		first := exits(w, 1, operate(w, s, "parked", "drop", "a", "--yes"))
		require.Contains(w, first.Out, "a: 1 event applied, the event in the way dropped; it stays parked: ProjectionFailed: ")
		require.Contains(w, first.Out, "(message "+terminal.Shorten(messageID(event("a", 4, ""))))
		require.Equal(w, messageID(event("a", 4, "")), parked(w, s.guards, "a").MessageID)
		require.Equal(w, 2, s.applied(w, "a"))
		exits(w, 0, operate(w, s, "parked", "drop", "a", "--yes"))
		require.Equal(w, 3, s.applied(w, "a"))

		// The very first event: the document is created by the second one.
		require.Equal(w, 0, operate(w, s, "parked", "drop", "f", "--yes").Code)
		require.Equal(w, 1, s.applied(w, "f"))
		require.Empty(w, parked(w, s.guards, "f"))

		// The aggregate of the unreadable one is unknown; it is removed, and the version that it
		// may have had is not missed.
		stuck := exits(w, 1, operate(w, s, "parked", "drop", "g", "--yes"))
		require.Contains(w, stuck.Out, "VersionGap")
		require.Equal(w, 0, operate(w, s, "parked", "drop", "g", "--yes").Code)
		require.Equal(w, 2, s.applied(w, "g"))

		require.Empty(w, deadLetters(w))
		publish(w, event("a", 6, "T"), event("a", 7, "T"))
		w.Completed(1 + 1 + 2)
		require.Equal(w, 5, s.applied(w, "a"))
	})
}

// G6: a drop removes the event that the operator has seen, and not another one that has blocked the
// aggregate since.
func TestG6ADropGivesUpTheEventThatTheOperatorHasSeen(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 2, "Poison"), event("a", 3, "Poison"), event("a", 4, "T"))
		deadLettered(w, 3)
		w.Pass(10 * time.Second)
		drop := func(n int) world.Operated {
			return operate(w, s, "parked", "drop", "a", "--message", messageID(event("a", n, "")), "--yes")
		}
		require.Equal(w, 1, drop(3).Code)
		require.Equal(w, messageID(event("a", 2, "")), parked(w, s.guards, "a").MessageID)
		require.Equal(w, 1, drop(2).Code, "the next one is in the way")
		again := drop(2)
		require.Equal(w, 1, again.Code)
		require.Contains(w, again.Err, "another event keeps the aggregate parked: message "+messageID(event("a", 3, ""))+", so nothing was dropped")
		require.Equal(w, []string{"a/3 AggregateParked", "a/4 AggregateParked"}, deadLetters(w))
		require.Equal(w, 0, drop(3).Code)
		require.Equal(w, 2, s.applied(w, "a"))
		require.Empty(w, deadLetters(w))
	})
}

// G6: an unreadable dead letter that another receiver has locked is not skipped: once its aggregate
// is not parked any more, no command would find it again.
func TestG6DropWaitsForMessagesOfAnotherReceiver(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		unreadable := encode(w, event("a", 2, "T"))
		unreadable.ApplicationProperties = nil
		publish(w, event("a", 1, "T"))
		send(w, unreadable)
		deadLettered(w, 1)
		receiver := deadLetterReceiver(w, azservicebus.ReceiveModePeekLock)
		_, err := receiver.ReceiveMessages(w.Context(), 1, nil)
		require.NoError(w, err)

		refused := exits(w, 1, operate(w, s, "parked", "drop", "a", "--yes"))
		require.Contains(w, refused.Err, "another receiver has locked a message of the dead-letter queue")
		require.NotEmpty(w, parked(w, s.guards, "a"))
		w.Pass(time.Minute) // the lock runs out
		require.Equal(w, 0, operate(w, s, "parked", "drop", "a", "--yes").Code)
		require.Empty(w, parked(w, s.guards, "a"))
		require.Empty(w, deadLetters(w))
		require.NoError(w, receiver.Close(w.Context()))
	})
}

// G5: a replay that is killed at any point can be repeated, and nothing is lost, doubled or applied
// out of order; a projector runs beside it all the time.
func TestG5ReplayKilledAnywhere(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			// With 1 it passes as well, and takes half a minute.
			killedAnywhere(t, 3, 11, func(w *world.World, n int) (finished bool) {
				s.fixed.Store(false)
				p := w.StartProjector(s.settings)
				publish(w, event("x", 1, "Poison"))
				deadLettered(w, 1)
				publish(w, event("a", 1, "Poison"), event("a", 2, "T"), event("a", 3, "T"))
				deadLettered(w, 4)
				s.fixed.Store(true)
				finished = !replayIsKilled(w, s, n, "a")
				publish(w, event("a", 4, "T"))
				w.Eventually("the event is applied or set aside", func() bool {
					stats := w.Bus.Stats(world.SubscriptionPath)
					return stats.Active == 0 && stats.Locked == 0
				})
				w.Pass(time.Minute) // locks run out

				again := operate(w, s, "parked", "replay", "a")
				require.Equal(w, 0, again.Code, "after %d writes: %s", n, again.Err)
				requireRight(w, s, "a", 4)
				require.Equal(w, []string{"x/1 ProjectionFailed"}, deadLetters(w), "after %d writes", n)
				require.NotEmpty(w, parked(w, s.guards, "x"))
				publish(w, event("a", 5, "T"))
				w.Eventually("life goes on", func() bool { return s.applied(w, "a") == 5 })
				p.MustEnd()
				return finished
			})
		})
	}
}

// replayIsKilled runs a replay that is killed at its n-th write to the network, and reports whether
// it was.
func replayIsKilled(w *world.World, s shape, n int, of string) bool {
	w.Helper()
	busPlug, mongoPlug := &world.Plug{}, &world.Plug{}
	kill := world.LayFuse(n, busPlug, mongoPlug)
	operateThrough(w, busPlug, mongoPlug, s, "parked", "replay", of)
	return kill.HasBlown()
}

// G5: the same holds for a replay of all: repeated, it completes what it began, down to the last
// dead letter.
func TestG5AReplayOfAllThatIsKilledAnywhereIsEndedByAnother(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			killedAnywhere(t, 3, 11, func(w *world.World, n int) (finished bool) {
				s.fixed.Store(false)
				p := w.StartProjector(s.settings)
				publish(w, event("a", 1, "Poison"), event("a", 2, "T"), event("b", 1, "T"), event("b", 2, "Poison"), event("b", 3, "T"))
				deadLettered(w, 4)
				w.Completed(1)
				p.MustEnd()
				s.fixed.Store(true)
				finished = !replayIsKilled(w, s, n, "--all")
				w.Pass(time.Minute) // locks run out

				again := operate(w, s, "parked", "replay", "--all")
				require.Equal(w, 0, again.Code, "after %d writes: %s", n, again.Err)
				requireRight(w, s, "a", 2)
				requireRight(w, s, "b", 3)
				require.Empty(w, deadLetters(w), "after %d writes", n)
				require.Equal(w, "no aggregate is parked\n", operate(w, s, "parked", "replay", "--all").Out)
				return finished
			})
		})
	}
}

// Two operators replay the same aggregate at once: one waits for the other, and finds nothing left
// to do.
func TestG5TwoReplaysAtOnce(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		publish(w, event("a", 1, "Poison"), event("a", 2, "T"), event("a", 3, "T"))
		deadLettered(w, 3)
		p.MustEnd()
		s.fixed.Store(true)
		w.DelayMongo(1, 10*time.Second, "update")
		both := make(chan world.Operated, 2)
		for range cap(both) {
			go func() { both <- operate(w, s, "parked", "replay", "a") }()
		}
		for range cap(both) {
			replay := <-both
			require.Equal(w, 0, replay.Code, replay.Err)
		}
		requireRight(w, s, "a", 3)
		require.Empty(w, deadLetters(w))
	})
}

// G5: a replay does not end a parking while a projector sets events aside.
func TestG5ReplayNoticesWhatIsSetAsideMeanwhile(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "Poison"), event("a", 2, "T"))
		deadLettered(w, 2)
		w.Pass(10 * time.Second) // the session is given back
		s.fixed.Store(true)
		// The replay is delayed before its first write; in the meantime its lock is lost, and a
		// projector accepts the session.
		command, done := "update", make(chan world.Operated, 1)
		w.DelayMongo(1, 40*time.Second, command)
		go func() { done <- operate(w, s, "parked", "replay", "a") }()
		w.Eventually("the replay has the session", func() bool { return w.Bus.Stats(world.SubscriptionPath).HeldSessions == 1 })
		w.Pass(time.Second)
		w.Bus.ExpireLocks(world.SubscriptionPath)
		publish(w, event("a", 3, "T"))
		deadLettered(w, 3)
		replay := <-done
		require.Equal(w, 0, replay.Code, replay.Err)
		requireRight(w, s, "a", 3)
		require.Empty(w, deadLetters(w))
	})
}

// A projector that holds the session and does not release it is named, and the replay waits no
// longer than requested.
func TestReplayWaitsForTheSession(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := shapes()[0]
		s.adjust = func(c *projector.Config) { c.SessionIdle, c.SessionMaxHold = 20*time.Second, 20*time.Second }
		w.StartProjector(s.settings)
		w.Pass(30 * time.Second) // a worker has found no session, so that one without messages is kept
		publish(w, event("a", 1, "Poison"))
		deadLettered(w, 1)
		s.fixed.Store(true)
		busy := exits(w, 1, operate(w, s, "parked", "replay", "a", "--wait", "5s"))
		require.Contains(w, busy.Err, "a projector holds the session a, and did not release it in 5s")
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		requireRight(w, s, "a", 1)
	})
}

// G5: many dead letters of others lie before those of the aggregate, and stay where they are.
func TestG5ReplayLeavesOtherDeadLettersInPlace(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := shapes()[0]
		w.StartProjector(s.settings)
		const others = 700
		publish(w, event("o", 1, "Poison"))
		deadLettered(w, 1)
		var behind []envelope.Change
		for n := 2; n <= others; n++ {
			behind = append(behind, event("o", n, "T"))
		}
		publish(w, behind...)
		deadLettered(w, others)
		publish(w, event("a", 1, "Poison"), event("a", 2, "T"))
		deadLettered(w, others+2)
		before := deadLetters(w)
		s.fixed.Store(true)
		replay := exits(w, 0, operate(w, s, "parked", "replay", "a"))
		require.Contains(w, replay.Out, "removed 2 of 2 messages")
		require.Equal(w, before[:others], deadLetters(w))
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Locked)

		exits(w, 0, operate(w, s, "parked", "replay", "o"))
		require.Equal(w, int64(others), w.TimelineOf("o").Events)
		require.Empty(w, deadLetters(w))
	})
}

// The event that parked the aggregate was removed by another program: to continue without it, the
// operator must say so.
func TestG6ReplayStopsIfThePoisonIsGone(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 2, "Poison"), event("a", 3, "T"))
		deadLettered(w, 2)
		loseDeadLetters(w, 1)
		s.fixed.Store(true)
		replay := exits(w, 1, operate(w, s, "parked", "replay", "a"))
		require.Contains(w, replay.Err, "it was removed. To continue without it: projector parked drop --yes --message ")
		require.NotEmpty(w, parked(w, s.guards, "a"))
		require.Equal(w, 0, operate(w, s, "parked", "drop", "a", "--yes").Code)
		require.Equal(w, 2, s.applied(w, "a"))
	})
}

// Dead letters of an aggregate that is not parked are not touched.
func TestReplayOfWhatIsNotParked(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := shapes()[0]
		for _, command := range [][]string{{"parked", "replay", "missing"}, {"parked", "drop", "missing", "--yes"}} {
			got := operate(w, s, command...)
			require.Equal(w, 1, got.Code, "a misspelt name is no success")
			require.Empty(w, got.Out)
			require.Contains(w, got.Err, "there is no aggregate missing: neither the read model nor the dead-letter queue has anything of it")
		}
		show := exits(w, 1, operate(w, s, "parked", "show", "missing"))
		require.Equal(w, "projector: missing is not parked; `projector parked list` shows those that are\n", show.Err)
		n, err := w.Client.Database(world.ReadModel).Collection("timeline").CountDocuments(w.Context(), bson.D{})
		require.NoError(w, err)
		require.Zero(w, n)
	})
}

// G2 and G5: the dead letters of a parked aggregate are lost, and the stream is published again in
// a later generation. Under its new id the event is recognised as the one that parked the
// aggregate: it is replayed, or dropped, and those behind it follow.
func TestG2G5WhatParkedAnAggregateIsKnownInALaterGeneration(t *testing.T) {
	for command, applied := range map[string]int{"replay": 5, "drop": 4} {
		eachShapeOf(t, command, func(w *world.World, s shape) {
			p := w.StartProjector(s.settings)
			events := []envelope.Change{event("a", 1, "T"), event("a", 2, "T"), event("a", 3, "Poison"), event("a", 4, "T"), event("a", 5, "T")}
			publish(w, events...)
			deadLettered(w, 3)
			loseDeadLetters(w, 3)
			for i := range events {
				events[i].Generation = 7
			}
			publish(w, events...)
			deadLettered(w, 3)
			require.Equal(w, []string{"a/3 ProjectionFailed", "a/4 AggregateParked", "a/5 AggregateParked"}, deadLetters(w))
			p.MustEnd()

			words := []string{"parked", command, "a"}
			if s.fixed.Store(command == "replay"); command == "drop" {
				words = append(words, "--yes")
			}
			exits(w, 0, operate(w, s, words...))
			require.Equal(w, applied, s.applied(w, "a"))
			require.Empty(w, parked(w, s.guards, "a"))
			require.Empty(w, deadLetters(w))
		})
	}
}

// G6: to accept the versions that are known to be missing is not to accept others, which the
// operator does not know of.
func TestG6DropGivesUpOneGapAlone(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 4, "T"))
		deadLettered(w, 1)
		publish(w, event("a", 5, "T"), event("a", 8, "T"))
		deadLettered(w, 3)
		require.Contains(w, operate(w, s, "parked", "show", "a").Out, "the event has version 4, and the last one applied has 1")

		dropped := exits(w, 1, operate(w, s, "parked", "drop", "a", "--yes"))
		require.Contains(w, dropped.Out, "the event has version 8, and the last one applied has 5")
		require.Equal(w, 3, s.applied(w, "a"))
		publish(w, event("a", 6, "T"), event("a", 7, "T")) // what was in flight arrives
		w.Pass(time.Minute)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		require.Equal(w, 6, s.applied(w, "a"))
		require.Empty(w, deadLetters(w))
	})
}

// G6: to continue without a lost event is not to continue without other missing versions.
func TestG6DropOfAnEventThatIsGoneGivesUpItsVersionAlone(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 2, "Poison"))
		deadLettered(w, 1)
		publish(w, event("a", 3, "T"), event("a", 5, "T"))
		deadLettered(w, 3)
		w.Pass(10 * time.Second)
		loseDeadLetters(w, 1)

		dropped := exits(w, 1, operate(w, s, "parked", "drop", "a", "--yes"))
		require.Contains(w, dropped.Out, "the event has version 5, and the last one applied has 3")
		require.Equal(w, 2, s.applied(w, "a"))
		publish(w, event("a", 4, "T"))
		w.Pass(time.Minute)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		require.Equal(w, 4, s.applied(w, "a"))
	})
}

// loseDeadLetters removes the first n messages of the dead-letter queue, as a person may who does
// not know their purpose.
func loseDeadLetters(w *world.World, n int) {
	w.Helper()
	receiver := deadLetterReceiver(w, azservicebus.ReceiveModeReceiveAndDelete)
	lost, err := receiver.ReceiveMessages(w.Context(), n, nil)
	require.NoError(w, err)
	require.Len(w, lost, n)
	require.NoError(w, receiver.Close(w.Context()))
}

// G6: a dropped event stays dropped: if versions begin with 1 and the first event is dropped, the
// second one is no gap.
func TestG6ADroppedFirstEventIsRemembered(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		s.adjust = func(c *projector.Config) { c.VersionFirst = 1 }
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "Poison"))
		deadLettered(w, 1)
		w.Pass(10 * time.Second)
		require.Equal(w, 0, operate(w, s, "parked", "drop", "a", "--yes").Code)
		publish(w, event("a", 2, "T"), event("a", 3, "Touch"), event("a", 4, "T"))
		w.Completed(3)
		require.Equal(w, 3, s.applied(w, "a"))
		require.Empty(w, guard(w, s.guards, "a").Lookup("empty"))
		if s.name == "repairable" {
			require.Equal(w, "2026-01-01T00:00:02Z", w.TimelineOf("a").First, "what is set when the document is made was not set")
		}
		require.Empty(w, deadLetters(w))
	})
}
