package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// shopped is a source with a producer, a projector and aggregates, for repairs beside them.
type shopped struct {
	*world.World
	set func(*projector.Config, *projector.Options)
	// change commits one change of an aggregate; right compares the whole read model with what was
	// committed.
	change func(aggregate string)
	right  func()
	// corrupt changes what the read model has of an aggregate, behind the projector's back.
	corrupt func(aggregate string)
}

// repaired are the projections whose aggregates can be repaired one by one.
var repaired = map[string]func(w *world.World) *shopped{
	"timeline": func(w *world.World) *shopped {
		indexed(w)
		w.StartProducer("a", onlyInserts)
		return &shopped{
			World: w, set: builds("timeline"),
			change: func(aggregate string) { appendEvent(w, aggregate) },
			right:  func() { require.Equal(w, w.Inserted, eventsIn(w, "timeline")) },
			corrupt: func(aggregate string) {
				_, err := w.Client.Database(world.ReadModel).Collection("timeline").UpdateOne(w.Context(), bson.D{{Key: "_id", Value: aggregate}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "events", Value: 1000}}}})
				require.NoError(w, err)
			},
		}
	},
	"mirror": func(w *world.World) *shopped {
		w.StartProducer("a", func(c *producer.Config, _ *producer.Options) {
			c.AggregateIDPath = "_id"
			c.Operations = []envelope.Operation{envelope.Insert, envelope.Update, envelope.Replace, envelope.Delete}
		})
		counts := map[string]int{}
		copies := w.Client.Database(world.ReadModel).Collection("mirror")
		return &shopped{
			World: w,
			set: func(c *projector.Config, o *projector.Options) {
				builds("mirror")(c, o)
				c.AggregateIDPath = "_id"
			},
			change: func(aggregate string) {
				counts[aggregate]++
				if counts[aggregate]%7 == 0 {
					_, err := w.Events.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: aggregate}})
					require.NoError(w, err)
					return
				}
				_, err := w.Events.UpdateOne(w.Context(), bson.D{{Key: "_id", Value: aggregate}},
					bson.D{{Key: "$inc", Value: bson.D{{Key: "events", Value: 1}}}}, options.UpdateOne().SetUpsert(true))
				require.NoError(w, err)
			},
			right: func() {
				require.Equal(w, documentsIn(w, w.Events), documentsIn(w, copies))
			},
			corrupt: func(aggregate string) {
				_, err := copies.UpdateOne(w.Context(), bson.D{{Key: "_id", Value: aggregate}},
					bson.D{{Key: "$set", Value: bson.D{{Key: "events", Value: -1}, {Key: "other", Value: true}}}}, options.UpdateOne().SetUpsert(true))
				require.NoError(w, err)
			},
		}
	},
}

// documentsIn returns the documents of a collection by their ids.
func documentsIn(w *world.World, collection *driver.Collection) map[string]string {
	w.Helper()
	cursor, err := collection.Find(w.Context(), bson.D{})
	require.NoError(w, err)
	var all []bson.Raw
	require.NoError(w, cursor.All(w.Context(), &all))
	documents := map[string]string{}
	for _, document := range all {
		documents[document.Lookup("_id").String()] = document.String()
	}
	return documents
}

// quick makes a projector release sessions soon, so that an operator who waits for one gets it.
func (s *shopped) quick(c *projector.Config, o *projector.Options) {
	s.set(c, o)
	c.SessionIdle, c.SessionMaxHold = 200*time.Millisecond, time.Second
}

func (s *shopped) repair(args ...string) world.Operated {
	return s.OperateProjector(operated(s.World, s.set), append([]string{"repair"}, args...)...)
}

// caughtUp waits until nothing is in flight.
func (s *shopped) caughtUp() {
	s.Helper()
	before := 0
	s.Eventually("everything is consumed", func() bool {
		topic, out := s.Bus.Stats(world.Topic).Accepted, s.Bus.Stats(world.SubscriptionPath)
		still := topic == before && out.Active == 0 && out.Locked == 0
		before = topic
		s.Pass(2 * time.Second)
		return still
	})
}

// G1, G2, G3: aggregates that are repaired beside writers, a producer and a projector, by a command
// that is killed repeatedly, have each event once at the end.
func TestG3ARepairBesideWritersHasEachEventOnce(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, repaired, func(w *world.World, name string, begin func(w *world.World) *shopped) {
		s := begin(w)
		w.Leads("a")
		random, writing := seeded(w), seeded(w)
		p := w.StartProjector(s.quick)
		for n := range 20 {
			s.change(fmt.Sprintf("a%d", n%4))
		}
		w.Completed(20)
		stop := beside(func() time.Duration { return time.Duration(50+writing.IntN(300)) * time.Millisecond },
			func() { s.change(fmt.Sprint("a", writing.IntN(4))) })
		for range 8 {
			broken := fmt.Sprint("a", random.IntN(4))
			s.corrupt(broken)
			code := -1
			for tries := 0; code != 0; tries++ {
				require.Less(w, tries, 100)
				w.DelayMongo(10, 15*time.Millisecond, "find", "insert", "update")
				patience := time.Duration(100+random.IntN(3000)) * time.Millisecond
				if tries > 5 {
					patience = time.Hour
				}
				ctx, kill := context.WithTimeout(w.Context(), patience)
				if code, _ = commandUntil(ctx, w, s.set, "repair", broken); code != 0 {
					require.Error(w, ctx.Err(), "it failed without a kill")
				}
				kill()
			}
		}
		stop()
		s.caughtUp()
		p.MustEnd()
		require.Equal(w, "no aggregate is parked\n", w.OperateProjector(s.set, "parked", "list").Out)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		s.right()
	})
}

// G1, G2, G3: a repair that is killed at any of its writes to the network can be run again, and
// ends right.
func TestG3ARepairKilledAnywhereIsRunAgain(t *testing.T) {
	step := 5
	if testing.Short() {
		step = 17
	}
	for name, begin := range repaired {
		t.Run(name, func(t *testing.T) {
			for n, finished := 1, false; !finished && !t.Failed(); n += step {
				world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
					s := begin(w)
					w.Leads("a")
					p := w.StartProjector(s.quick)
					for range 3 {
						s.change("a")
					}
					w.Completed(3)
					s.corrupt("a")
					require.Zero(w, w.OperateProjector(s.set, "parked", "park", "a", "--reason", "wrong").Code)
					s.change("a")
					w.Eventually("it waits", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 1 })
					bus, mongo := &world.Plug{}, &world.Plug{}
					kill := world.LayFuse(n, bus, mongo)
					ctx, cancel := context.WithTimeout(w.Context(), 2*time.Minute)
					commandUntil(ctx, w, func(c *projector.Config, o *projector.Options) {
						s.set(c, o)
						o.ServiceBus, o.Mongo = world.BusOptions(bus.Dialer(w.BusNet)), world.MongoOptions(mongo.Dialer(w.OperatorMongo))
					}, "repair", "a")
					cancel()
					finished = !kill.HasBlown()
					s.change("a")
					w.Pass(time.Minute) // locks run out
					again := s.repair("a")
					require.Zero(w, again.Code, "after %d writes: %s", n, again.Err)
					s.change("a")
					s.caughtUp()
					p.MustEnd()
					require.Equal(w, "no aggregate is parked\n", w.OperateProjector(s.set, "parked", "list").Out)
					require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered, "after %d writes", n)
					s.right()
				})
			}
		})
	}
}

// G1, G2, G3: an event that is applied before the aggregate is parked, or set aside while the
// source is read, is neither lost nor counted twice.
func TestG1WhatComesDuringARepairIsNotLost(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, repaired, func(w *world.World, name string, begin func(w *world.World) *shopped) {
		s := begin(w)
		w.Leads("a")
		p := w.StartProjector(s.quick)
		for range 3 {
			s.change("a")
		}
		w.Completed(3)
		s.corrupt("a")
		var before, during sync.Once
		monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName != "find" {
				return
			}
			of, _ := e.Command.Lookup("find").StringValueOK()
			level, _ := e.Command.Lookup("readConcern", "level").StringValueOK()
			switch {
			case of != "events":
				if strings.HasPrefix(of, name) && !strings.HasSuffix(of, "_build") { // the guard, before it is parked
					before.Do(func() {
						s.change("a")
						w.Completed(4)
					})
				}
			case level == "snapshot":
				during.Do(func() {
					s.change("a")
					w.Eventually("it is set aside", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 1 })
				})
			}
		}}
		answer := w.OperateProjector(func(c *projector.Config, o *projector.Options) {
			operated(w, s.set)(c, o)
			dial := o.Mongo
			o.Mongo = func(m *options.ClientOptions) { dial(m.SetMonitor(monitor)) }
		}, "repair", "a")
		require.Zero(w, answer.Code, answer.Err)
		before.Do(func() { w.Error("the guard was never read") })
		during.Do(func() { w.Error("the source was never read") })
		s.caughtUp()
		p.MustEnd()
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		s.right()
	})
}

// G1, G3: whatever the reason of a parking, a repair reads the source, ends the parking, and
// removes the events that waited for it, including those that the broker dead-lettered.
func TestG1G3AnOvertakenAggregateIsRepaired(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		s := repaired["mirror"](w)
		w.Leads("a")
		s.change("a")
		w.Eventually("it is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 1 })
		for w.Bus.Stats(world.SubscriptionPath).DeadLettered == 0 { // as a projector that repeatedly dies of it
			receiver, err := w.BusClient.AcceptSessionForSubscription(w.Context(), world.Topic, world.Subscription, "a", nil)
			require.NoError(w, err)
			_, err = receiver.ReceiveMessages(w.Context(), 1, nil)
			require.NoError(w, err)
			w.Pass(world.LockDuration + time.Second)
			_ = receiver.Close(w.Context())
		}
		p := w.StartProjector(s.quick)
		s.change("a")
		w.Completed(1)
		replay := w.OperateProjector(s.set, "parked", "replay", "a")
		require.Equal(w, 1, replay.Code)
		require.Contains(w, replay.Out, "Overtaken")
		require.Contains(w, replay.Out, "Repair the aggregate from its source")
		s.change("a")
		w.Eventually("it is set aside", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 2 })

		answer := s.repair("a")
		require.Zero(w, answer.Code, answer.Err)
		require.Contains(w, answer.Out, "a: repaired from its source, 2 dead letters no longer needed; it is not parked\n")
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		s.right()
		s.change("a")
		s.caughtUp()
		p.MustEnd()
		s.right()
	})
}

// G3: the guard of an aggregate that the source no longer contains stays: events that still wait
// are not treated as its first ones.
func TestG3AnAggregateThatIsGoneKeepsItsGuard(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		s := repaired["timeline"](w)
		w.Leads("a")
		p := w.StartProjector(s.quick)
		s.change("gone")
		w.Completed(1)
		p.MustEnd()
		s.change("gone") // which waits, and is applied after the repair
		w.Eventually("it is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 2 })
		_, err := w.Events.DeleteMany(w.Context(), bson.D{})
		require.NoError(w, err)
		require.Zero(w, s.repair("gone").Code)
		p = w.StartProjector(s.quick)
		w.Completed(2)
		require.Zero(w, eventsOf(w, "timeline", "gone"), "the event is older than the repair")
		s.change("gone")
		w.Completed(3)
		p.MustEnd()
		require.Equal(w, 1, eventsOf(w, "timeline", "gone"), "an event behind the repair counts")
	})
}

// G5: an aggregate that could not be built is neither replayed nor partly dropped: it is repaired
// once the projection is correct.
func TestG5WhatCouldNotBeBuiltIsRepaired(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, map[string]string{"ledger": "accounts", "sick": "sick"}, func(w *world.World, setting, collection string) {
		begun(w, 9)
		appendEvent(w, "a1", bson.E{Key: "poison", Value: true})
		w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 10 })
		set := func(well bool) func(*projector.Config, *projector.Options) {
			return operated(w, builds(setting, sick{well}))
		}
		require.Zero(w, w.OperateProjector(set(false), "build", "--accept-failed").Code)
		p := w.StartProjector(builds(setting, sick{}))
		appendEvent(w, "a1")
		appendEvent(w, "a0")
		w.Completed(7) // all but those of a1
		for _, command := range [][]string{{"parked", "replay", "a1"}, {"parked", "drop", "a1", "--yes"}} {
			refused := w.OperateProjector(set(true), command...)
			require.Equal(w, 1, refused.Code)
			require.Contains(w, refused.Err, "the aggregate could not be built, so no event of the queue completes it")
			require.Contains(w, refused.Err, "Correct the projection, then: projector repair -- a1")
		}
		if setting == "sick" {
			still := w.OperateProjector(set(false), "repair", "a1")
			require.Equal(w, 1, still.Code)
			require.Contains(w, still.Err, "the projection refuses a document")
		}
		skip := []string{"repair", "a1"}
		if setting == "ledger" {
			skip = append(skip, "--skip-event", poisonID(w))
		}
		require.Zero(w, w.OperateProjector(set(true), skip...).Code)
		require.Equal(w, 0, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		appendEvent(w, "a1")
		w.Eventually("it goes on", func() bool { return w.Bus.Stats(world.SubscriptionPath).Active == 0 })
		w.Completed(8)
		p.MustEnd()
		if setting == "sick" {
			require.Equal(w, 6, eventsOf(w, collection, "a1"))
		} else {
			require.Equal(w, 5, eventsOf(w, collection, "a1"))
			require.Equal(w, 12, eventsOf(w, "totals", "all"))
		}
		require.Equal(w, 4, eventsOf(w, collection, "a0"))
	})
}

// G6: a source that contains less than the stream did is refused, with the remedy, and the
// aggregate is unchanged.
func TestG6ARepairThatCannotBeRightIsRefused(t *testing.T) {
	type row struct {
		setting string
		wrong   func(w *world.World)
		set     func(c *projector.Config, o *projector.Options)
		args    []string
		want    string
	}
	world.Each(t, world.Options{Since: "5.0"}, map[string]row{
		"a projection of several documents": {setting: "ledger", want: "is neither a OneDocument nor a mirror by _id. Build a new version of it"},
		"an unknown aggregate":              {args: []string{"a7"}, want: "a7: there is no such aggregate: neither the read model nor the source has anything of it; nothing was done"},
		"no aggregate":                      {args: []string{}, want: "needs the aggregates; `projector parked list` shows those that are parked"},
		"a mirror of an event store": {
			setting: "mirror", want: "with AGGREGATE_ID_PATH=_id",
		},
		"a mirror of a stream of inserts": {
			setting: "mirror", set: func(c *projector.Config, _ *projector.Options) { c.AggregateIDPath = "_id" },
			want: "stream shop.events has AGGREGATE_ID_PATH=aggregateId, and the projector _id",
		},
		"without an index": {
			wrong: func(w *world.World) { require.NoError(w, w.Events.Indexes().DropAll(w.Context())) },
			want:  `create one, such as db.events.createIndex({"aggregateId": 1, "version": 1})`,
		},
		"a version that is not built": {
			set: func(c *projector.Config, _ *projector.Options) {
				c.Projection, c.Subscription = "timeline:2", "timeline-v2"
			},
			wrong: func(w *world.World) { subscribe(w, "timeline-v2") },
			want:  "the build of the read model has not ended",
		},
		"another stream's guard": {
			wrong: func(w *world.World) {
				_, err := w.Client.Database(world.ReadModel).Collection("timeline").UpdateOne(w.Context(), bson.D{{Key: "_id", Value: "a0"}},
					bson.D{{Key: "$set", Value: bson.D{{Key: projection.GuardField + ".stream", Value: "shop.others"}}}})
				require.NoError(w, err)
			},
			want: "another stream feeds the aggregate, too",
		},
		"a source of the past": {
			wrong: func(w *world.World) {
				_, err := w.Client.Database(world.ReadModel).Collection("timeline").UpdateOne(w.Context(), bson.D{{Key: "_id", Value: "a0"}},
					bson.D{{Key: "$set", Value: bson.D{{Key: projection.GuardField + ".position", Value: "83"}}}})
				require.NoError(w, err)
			},
			want: "the source's time is before the last event applied",
		},
	}, func(w *world.World, name string, test row) {
		setting := test.setting
		if setting == "" {
			setting = "timeline"
		}
		begun(w, 9)
		p := w.StartProjector(builds(setting))
		w.Completed(9)
		p.MustEnd()
		if test.wrong != nil {
			test.wrong(w)
		}
		args := test.args
		if args == nil {
			args = []string{"a0"}
		}
		answer := w.OperateProjector(func(c *projector.Config, o *projector.Options) {
			operated(w, builds(setting))(c, o)
			if test.set != nil {
				test.set(c, o)
			}
		}, append([]string{"repair"}, args...)...)
		require.NotZero(w, answer.Code)
		require.Contains(w, answer.Err, test.want)
		if setting == "timeline" {
			require.Equal(w, 3, eventsOf(w, "timeline", "a0"))
		}
	})
}

// verify finds what is wrong and has it repaired, including documents that no event of the source
// creates.
func TestVerifyRepairsWhatItFinds(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, repaired, func(w *world.World, name string, begin func(w *world.World) *shopped) {
		s := begin(w)
		w.Leads("a")
		p := w.StartProjector(s.quick)
		for n := range 9 {
			s.change(fmt.Sprintf("a%d", n%3))
		}
		w.Completed(9)
		s.corrupt("a1")
		_, err := w.Client.Database(world.ReadModel).Collection(name).InsertOne(w.Context(), bson.D{{Key: "_id", Value: "nothing"}, {Key: "events", Value: 1}})
		require.NoError(w, err)
		answer := w.OperateProjector(operated(w, s.set), "verify", "--repair", "--wait", "5s")
		require.Zero(w, answer.Code, answer.Err)
		require.Equal(w, 2, strings.Count(answer.Out, "repaired from its source"), answer.Out)
		s.change("a1")
		s.caughtUp()
		require.Zero(w, w.OperateProjector(operated(w, s.set), "verify").Code)
		p.MustEnd()
		if name == "mirror" {
			s.right()
		}
	})
}
