package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// builds returns the settings of a build, and of the projector that continues behind it. The
// projection is built in, the ledger, or one of those given.
func builds(setting string, given ...projection.Projection) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		c.Projection, o.Projections = setting, projection.Builtin()
		for _, p := range append(given, world.Ledger{}) {
			if err := o.Projections.Register(p); err != nil {
				panic(err)
			}
		}
		if name, v, err := projection.ParseVersion(setting); err == nil && v > 1 {
			c.Subscription = fmt.Sprintf("%s-v%d", name, v)
		}
		c.Stream, c.CheckpointContainer = "shop.events", "sluice"
		c.ClaimContainer = "claim-checks"
	}
}

// asProgram is like builds with the projection in a program of its own.
func asProgram(w *world.World, p projection.Projection, setting string) (set func(*projector.Config, *projector.Options), end func()) {
	w.Helper()
	g := w.StartProgram(p)
	return func(c *projector.Config, o *projector.Options) {
		builds(setting)(c, o)
		g.Runs(setting)(c, o)
	}, g.End
}

// operated gives a build access to Blob storage, which a projector does not need.
func operated(w *world.World, set func(*projector.Config, *projector.Options)) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		set(c, o)
		c.Blob = azure.Blob{ConnectionString: blob.ConnectionString(world.BlobHost)}
		o.Blob = world.BlobOptions(w.Blob.Transport())
	}
}

func onlyInserts(c *producer.Config, _ *producer.Options) {
	c.Operations = []envelope.Operation{envelope.Insert}
}

// anEvent returns the event of a version of an aggregate.
func anEvent(aggregate string, version int) bson.D {
	return bson.D{
		{Key: "aggregateId", Value: aggregate},
		{Key: "version", Value: version},
		{Key: "type", Value: "Counted"},
		{Key: "occurredAt", Value: fmt.Sprint(aggregate, "@", version)},
	}
}

// appendEvent commits the next event of an aggregate.
func appendEvent(w *world.World, aggregate string, more ...bson.E) {
	w.Inserted[aggregate]++
	w.InsertDocument(append(anEvent(aggregate, w.Inserted[aggregate]), more...))
}

// appendEvents commits n events of a few aggregates, whose names are a0, a1 and so on.
func appendEvents(w *world.World, n, aggregates int) {
	for i := range n {
		appendEvent(w, fmt.Sprint("a", i%aggregates))
	}
}

// appendAtOnce commits n events of an aggregate with one command.
func appendAtOnce(w *world.World, aggregate string, n int) {
	documents := make([]any, n)
	for i := range documents {
		w.Inserted[aggregate]++
		documents[i] = anEvent(aggregate, w.Inserted[aggregate])
	}
	_, err := w.Events.InsertMany(w.Context(), documents)
	require.NoError(w, err)
}

// beside calls do again and again, after a pause each, until stop is called.
func beside(pause func() time.Duration, do func()) (stop func()) {
	ended := make(chan struct{})
	var doing sync.WaitGroup
	doing.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(pause()):
				do()
			}
		}
	})
	return func() {
		close(ended)
		doing.Wait()
	}
}

// seeded returns a source of random numbers, whose seed is logged.
func seeded(w *world.World) *rand.Rand {
	seed := rand.Uint64()
	w.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// indexed creates the index by which a build reads an event store.
func indexed(w *world.World) {
	w.Helper()
	world.CreateIndex(w.T, w.Events, "aggregateId", "version")
}

// subscribe adds a subscription with sessions to the topic.
func subscribe(w *world.World, name string) {
	w.Helper()
	require.NoError(w, w.Bus.AddSubscription(world.Topic, servicebus.Subscription{
		Name: name, Outbound: servicebus.Outbound{RequiresSession: true, LockDuration: world.LockDuration},
	}))
}

// count returns how many documents a collection of the read model has.
func count(w *world.World, collection string) int {
	w.Helper()
	n, err := w.Client.Database(world.ReadModel).Collection(collection).CountDocuments(w.Context(), bson.D{})
	require.NoError(w, err)
	return int(n)
}

// buildUntil runs the command until ctx ends, as a process that is killed then.
func buildUntil(ctx context.Context, w *world.World, set func(*projector.Config, *projector.Options), args ...string) (code int, out string) {
	return commandUntil(ctx, w, set, append([]string{"build"}, args...)...)
}

// commandUntil runs a command of the projector until ctx ends, as a process that is killed then.
func commandUntil(ctx context.Context, w *world.World, set func(*projector.Config, *projector.Options), args ...string) (code int, out string) {
	done := w.OperateProjectorUntil(ctx, operated(w, set), args...)
	return done.Code, done.Out + done.Err
}

// G1, G2, G3: a read model that is built beside writers, by a command that is killed repeatedly,
// and that then continues with the waiting events, contains each event once.
func TestG3ABuildBesideWritersHasEachEventOnce(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, map[string]projection.Projection{
		"timeline": nil, "ledger": nil, "timeline:2": nil, "ledger:2": nil,
		"ledger as a program": world.Ledger{}, "timeline:2 as a program": projection.Timeline{}, "ledger:2 as a program": world.Ledger{},
	}, func(w *world.World, name string, program projection.Projection) {
		setting, _, _ := strings.Cut(name, " ")
		set := builds(setting)
		if program != nil {
			var end func()
			set, end = asProgram(w, program, setting)
			defer end()
		}
		subscription, suffix := world.Subscription, ""
		if versioned, is := strings.CutSuffix(setting, ":2"); is {
			subscription, suffix = versioned+"-v2", "_v2"
			subscribe(w, subscription)
		}
		indexed(w)
		random := seeded(w)
		commit := func() { appendEvent(w, fmt.Sprintf("a%02d", random.IntN(40))) }
		for range 300 {
			commit()
		}
		w.StartProducer("a", onlyInserts)
		w.Leads("a")
		for range 50 {
			commit()
		}
		stop := beside(func() time.Duration { return 20 * time.Millisecond }, commit)
		code := -1
		for tries := 0; code != 0; tries++ {
			require.Less(w, tries, 200)
			w.DelayMongo(40, 15*time.Millisecond, "find", "insert", "update")
			ctx, kill := context.WithTimeout(w.Context(), time.Duration(50+random.IntN(400))*time.Millisecond)
			if code, _ = buildUntil(ctx, w, set, "--chunk", "20"); code != 0 {
				require.Error(w, ctx.Err(), "it failed without a kill")
			}
			kill()
		}
		w.Pass(600 * time.Millisecond)
		stop()
		p := w.StartProjector(set)
		total := w.Total()
		w.Eventually("everything is consumed", func() bool {
			return w.Bus.Stats(world.Topic).Accepted == total-300 && w.Bus.Stats(world.Topic+"/Subscriptions/"+subscription).Active == 0
		})
		p.MustEnd()
		if strings.HasPrefix(setting, "timeline") {
			require.Equal(w, w.Inserted, eventsIn(w, "timeline"+suffix))
			return
		}
		require.Equal(w, w.Inserted, eventsIn(w, "accounts"+suffix))
		require.Equal(w, total, eventsOf(w, "totals"+suffix, "all"))
	})
}

// begun begins a stream with events of three aggregates, and creates an index for a build.
func begun(w *world.World, events int) {
	w.Helper()
	indexed(w)
	w.StartProducer("a", onlyInserts)
	w.Leads("a")
	appendEvents(w, events, 3)
	w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == events })
}

// G6: a source whose documents lack changes of the stream is refused, with the remedy, and nothing
// is written.
func TestG6ABuildThatCannotBeRightIsRefused(t *testing.T) {
	type row struct {
		wrong func(w *world.World)
		set   func(c *projector.Config, o *projector.Options)
		want  string
	}
	world.Each(t, world.Options{Since: "5.0"}, map[string]row{
		"without an index": {
			wrong: func(w *world.World) { require.NoError(w, w.Events.Indexes().DropAll(w.Context())) },
			want:  `create one, such as db.events.createIndex({"aggregateId": 1, "version": 1})`,
		},
		"with a sparse index": {
			wrong: func(w *world.World) {
				require.NoError(w, w.Events.Indexes().DropAll(w.Context()))
				_, err := w.Events.Indexes().CreateOne(w.Context(), driver.IndexModel{
					Keys: bson.D{{Key: "aggregateId", Value: 1}}, Options: options.Index().SetSparse(true),
				})
				require.NoError(w, err)
			},
			want: "no index on aggregateId that holds all of its documents",
		},
		"of a collection with a collation": {
			wrong: func(w *world.World) {
				require.NoError(w, w.Events.Drop(w.Context()))
				require.NoError(w, w.Events.Database().CreateCollection(w.Context(), "events",
					options.CreateCollection().SetCollation(&options.Collation{Locale: "en", Strength: 2})))
			},
			want: "shop.events has a collation, by which different aggregate ids may be equal",
		},
		"without a subscription": {
			set: func(c *projector.Config, _ *projector.Options) {
				c.Projection, c.Subscription = "ledger:3", "ledger-v3"
			},
			want: "beside a subscription of its own",
		},
		"a version that shares a subscription": {
			set: func(c *projector.Config, _ *projector.Options) {
				c.Projection, c.Subscription = "ledger:3", world.Subscription
			},
			want: "SERVICE_BUS_SUBSCRIPTION: version 3 of a projection has a subscription of its own, named ledger-v3",
		},
		"a version of a queue": {
			set: func(c *projector.Config, _ *projector.Options) {
				c.Projection, c.Topic, c.Subscription, c.Queue = "ledger:3", "", "", world.Queue
			},
			want: "SERVICE_BUS_QUEUE: version 3 of a projection needs a subscription of its own, named ledger-v3",
		},
		"no stream": {
			set:  func(c *projector.Config, _ *projector.Options) { c.Stream = "shop.others" },
			want: "stream shop.others has no checkpoint in container sluice",
		},
		"no storage": {
			set:  func(c *projector.Config, _ *projector.Options) { c.Blob = azure.Blob{} },
			want: "BLOB_ACCOUNT_URL: is required for this command",
		},
		"another collection": {
			set:  func(c *projector.Config, _ *projector.Options) { c.SourceCollection = "others" },
			want: "stream shop.events is of shop.events, and SOURCE_DATABASE and SOURCE_COLLECTION name shop.others",
		},
		"ids of several types": {
			wrong: func(w *world.World) {
				w.InsertDocument(bson.D{{Key: "aggregateId", Value: 7}, {Key: "version", Value: 1}})
			},
			want: "aggregate ids of several types",
		},
		"a document without an aggregate id": {
			wrong: func(w *world.World) { w.InsertDocument(bson.D{{Key: "version", Value: 1}}) },
			want:  "has an aggregate id that a build cannot put in order",
		},
		"a model that a projector has written": {
			wrong: func(w *world.World) {
				p := w.StartProjector(builds("ledger"))
				w.Completed(9)
				p.MustEnd()
			},
			want: "ledger_positions is not empty. A projector must not consume the subscription before the build has ended: stop it, and build another version",
		},
		"a projection that two streams feed": {
			wrong: func(w *world.World) {
				_, err := w.Client.Database(world.ReadModel).Collection("ledger_positions").InsertOne(w.Context(),
					bson.D{{Key: "_id", Value: "b1"}, {Key: "position", Value: "83"}, {Key: "stream", Value: "shop.others"}})
				require.NoError(w, err)
				subscribe(w, "ledger-v2")
			},
			set: func(c *projector.Config, _ *projector.Options) {
				c.Projection, c.Subscription = "ledger:2", "ledger-v2"
			},
			want: `version 1 of ledger is fed by another stream than shop.events, too (aggregate "b1")`,
		},
		"a source behind the stream": {
			wrong: func(w *world.World) {
				w.Producers[0].End()
				text := make([]byte, 1<<20)
				n, err := w.Blobs().DownloadBuffer(w.Context(), "sluice", "shop.events.json", text, nil)
				require.NoError(w, err)
				position := w.CheckpointOf("shop.events").Position
				later := position[:2] + "FFFFFFFF" + position[10:]
				_, err = w.Blobs().UploadBuffer(w.Context(), "sluice", "shop.events.json", bytes.ReplaceAll(text[:n], []byte(position), []byte(later)), nil)
				require.NoError(w, err)
			},
			want: "SOURCE_MONGODB_URI names another cluster than the producer's MONGODB_URI, or an old copy of it",
		},
		"an id that is a list": {
			wrong: func(w *world.World) {
				w.InsertDocument(bson.D{{Key: "aggregateId", Value: bson.A{"a1", "a2"}}, {Key: "version", Value: 1}})
			},
			want: "no aggregate id at aggregateId",
		},
		"writes that depend on the time": {
			set: func(c *projector.Config, o *projector.Options) {
				require.NoError(t, o.Projections.Register(clock{}))
				c.Projection = "clock"
			},
			want: "depend on the position, the time or the id of the event's message",
		},
	}, func(w *world.World, name string, test row) {
		begun(w, 9)
		if test.wrong != nil {
			test.wrong(w)
		}
		answer := w.OperateProjector(func(c *projector.Config, o *projector.Options) {
			operated(w, builds("ledger"))(c, o)
			if test.set != nil {
				test.set(c, o)
			}
		}, "build")
		require.NotZero(w, answer.Code)
		require.Contains(w, answer.Err, test.want)
		if name != "a model that a projector has written" {
			require.Zero(w, count(w, "accounts"))
		}
	})
}

// clock keeps when an event was made.
type clock struct{}

func (clock) Name() string                         { return "clock" }
func (clock) Collections() []projection.Collection { return []projection.Collection{{Name: "clock"}} }

func (clock) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update("clock", e.Aggregate, projection.Set("at", e.Time))}, nil
}

// G1, G6: a build beside a stream whose checkpoint is in MongoDB; one that reads where the
// checkpoint was before it was moved is refused.
func TestG6ABuildReadsTheCheckpointWhereItIs(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexed(w)
		appendEvents(w, 50, 7)
		before := w.StartProducer("before", onlyInserts)
		w.Leads("before")
		before.End()
		inMongo := func(c *producer.Config, o *producer.Options) {
			onlyInserts(c, o)
			c.CheckpointStore, c.CheckpointMongoURI, c.CheckpointMongoDatabase, c.StartFrom = "mongodb", w.MongoURI(), "sluice", "checkpoint"
		}
		builder := builds("timeline")
		reads := func(c *projector.Config, o *projector.Options) {
			builder(c, o)
			c.CheckpointStore, c.CheckpointMongoURI, c.CheckpointMongoDatabase = "mongodb", w.MongoURI(), "sluice"
		}
		code, out := buildUntil(w.Context(), w, reads)
		require.Equal(w, 1, code)
		require.Contains(w, out, "has no checkpoint in the collection sluice.sluice_checkpoints")

		moving := w.ProducerConfig()
		moving.CheckpointMongoURI, moving.CheckpointMongoDatabase = w.MongoURI(), "sluice"
		require.Zero(w, w.OperateProducer([]producer.Config{moving}, "token", "move", "--to", "mongodb").Code)
		code, out = buildUntil(w.Context(), w, builder)
		require.Equal(w, 1, code)
		require.Contains(w, out, `was moved to another store: set CHECKPOINT_STORE=mongodb`)

		w.StartProducer("after", inMongo)
		appendEvent(w, "a0")
		w.Eventually("it is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 1 })
		code, out = buildUntil(w.Context(), w, reads)
		require.Zero(w, code, out)
		p := w.StartProjector(reads)
		appendEvent(w, "a1")
		w.Eventually("the read model has every event", func() bool { return maps.Equal(w.Inserted, eventsIn(w, "timeline")) })
		p.MustEnd()
	})
}

// G1, G3: no event of a version is applied before its build has ended, and an event that waits is
// not treated as the first of its aggregate because earlier ones were deleted from the source.
func TestG3NothingIsAppliedBeforeTheBuildHasEnded(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		subscribe(w, "ledger-v2")
		begun(w, 9)
		p := w.StartProjector(builds("ledger:2"))
		w.Pass(9 * time.Minute)
		require.Equal(w, 9, w.Bus.Stats(world.Topic+"/Subscriptions/ledger-v2").Active)
		require.Equal(w, 2, strings.Count(p.Log.Text(), "no event is applied before the read model is built"))

		_, err := w.Events.DeleteMany(w.Context(), bson.D{{Key: "aggregateId", Value: "a1"}})
		require.NoError(w, err)
		answer := w.OperateProjector(operated(w, builds("ledger:2")), "build")
		require.Zero(w, answer.Code, answer.Err)
		require.Regexp(w, `^ledger_v2 from shop.events: 6 events of 2 aggregates built in \S+\nStart its projector now: PROJECTION=ledger:2\n$`, answer.Out)
		appendEvent(w, "a0")
		appendEvent(w, "new")
		w.Eventually("all is consumed", func() bool { return w.Bus.Stats(world.Topic+"/Subscriptions/ledger-v2").Completed == 11 })
		p.MustEnd()
		require.Equal(w, map[string]int{"a0": 4, "a2": 3, "new": 1}, eventsIn(w, "accounts_v2"), "the source has nothing of a1")
		require.Equal(w, 8, eventsOf(w, "totals_v2", "all"))
		require.Zero(w, w.OperateProjector(operated(w, builds("ledger:2")), "build").Code)
		require.Equal(w, 8, eventsOf(w, "totals_v2", "all"), "it is built already")
	})
}

func eventsOf(w *world.World, collection, id string) int {
	w.Helper()
	var doc struct {
		Events int `bson:"events"`
	}
	err := w.Client.Database(world.ReadModel).Collection(collection).FindOne(w.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&doc)
	if err != nil {
		require.ErrorIs(w, err, driver.ErrNoDocuments)
	}
	return doc.Events
}

// G5: an event that can never be projected keeps its own aggregate from being built, and no other;
// once the projection is corrected, another build adds that aggregate.
func TestG5ABuildLeavesOutTheAggregateThatFails(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, map[string]string{"ledger": "accounts", "sick": "sick"}, func(w *world.World, setting, collection string) {
		begun(w, 9)
		appendEvent(w, "a1", bson.E{Key: "poison", Value: true})
		w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 10 })
		build := func(well bool, args ...string) world.Operated {
			return w.OperateProjector(operated(w, builds(setting, sick{well})), append([]string{"build"}, args...)...)
		}
		answer := build(false)
		require.Equal(w, 1, answer.Code)
		require.Contains(w, answer.Out, "1 aggregate could not be built:\n  a1: document ")
		require.Contains(w, answer.Out, "poison")
		require.Equal(w, 3, eventsOf(w, collection, "a0"))
		require.Zero(w, eventsOf(w, collection, "a1"))
		p := w.StartProjector(builds(setting, sick{true}))
		w.Pass(time.Minute)
		require.Equal(w, 10, w.Bus.Stats(world.SubscriptionPath).Active, "nothing is consumed before all is built")
		var skip []string
		if setting == "ledger" {
			skip = []string{"--skip-event", poisonID(w)}
		}
		require.Zero(w, build(true, skip...).Code)
		appendEvent(w, "a1")
		w.Completed(11)
		p.MustEnd()
		require.Equal(w, 3, eventsOf(w, collection, "a0"))
		if setting == "sick" {
			require.Equal(w, 5, eventsOf(w, collection, "a1"))
		} else {
			require.Equal(w, 4, eventsOf(w, collection, "a1"))
			require.Equal(w, 10, eventsOf(w, "totals", "all"))
		}
	})
}

func poisonID(w *world.World) string {
	var doc struct {
		ID bson.ObjectID `bson:"_id"`
	}
	require.NoError(w, w.Events.FindOne(w.Context(), bson.D{{Key: "poison", Value: true}}).Decode(&doc))
	return doc.ID.Hex()
}

// sick keeps one document of each aggregate, and fails for poison until it is fixed.
type sick struct{ well bool }

func (sick) Name() string       { return "sick" }
func (sick) Collection() string { return "sick" }
func (s sick) Project(e projection.Event) ([]projection.Write, error) {
	if _, poison := e.Document().Lookup("poison").BooleanOK(); poison && !s.well {
		panic("poison")
	}
	return []projection.Write{projection.Update("sick", e.Aggregate, projection.Inc("events", 1))}, nil
}

// G3: a projector that consumes beside the build is noticed, and the build ends with the remedy.
func TestG3ABuildBesideAProjectorIsNoticed(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexed(w)
		appendEvents(w, 9, 3)
		w.StartProducer("a", onlyInserts)
		w.Leads("a")
		p := w.StartProjector(builds("ledger")) // before there is a build for which it would wait
		w.Eventually("the projector waits for messages", func() bool { return w.Bus.Stats(world.SubscriptionPath).Waiters > 0 })
		b := startBuild(w.Context(), w, builds("ledger"), "--chunk", "3")
		w.Eventually("the first aggregate is built", func() bool { return eventsOf(w, "accounts", "a0") == 3 })
		appendEvent(w, "a2")
		code, out := b.end()
		require.Equal(w, 1, code)
		require.Contains(w, out, `the read model holds an aggregate that this build has not written: "a2". A projector must not consume the subscription`)
		p.MustEnd()
	})
}

// numbered keeps one document of each aggregate, and no two of the same number.
type numbered struct{}

func (numbered) Name() string       { return "numbered" }
func (numbered) Collection() string { return "numbered" }
func (numbered) Collections() []projection.Collection {
	return []projection.Collection{{Name: "numbered", Indexes: []projection.Index{{
		Keys: bson.D{{Key: "number", Value: 1}}, Unique: true, Partial: bson.D{{Key: "number", Value: bson.D{{Key: "$exists", Value: true}}}},
	}}}}
}

func (numbered) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update("numbered", e.Aggregate, projection.Inc("events", 1), projection.Set("number", e.Document().Lookup("number")))}, nil
}

// G5: the build creates the indexes of the read model before it writes, and an aggregate that one
// of them refuses is not built.
func TestG5ABuildLeavesOutTheAggregateThatTheDatabaseRefuses(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexed(w)
		w.StartProducer("a", onlyInserts)
		w.Leads("a")
		for aggregate, number := range map[string]int{"a0": 1, "a1": 2, "a2": 2} {
			appendEvent(w, aggregate, bson.E{Key: "number", Value: number})
		}
		w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 3 })
		set := operated(w, builds("numbered", numbered{}))
		for range 2 { // it is retried, and refused again
			answer := w.OperateProjector(set, "build", "--chunk", "1")
			require.Equal(w, 1, answer.Code)
			require.Contains(w, answer.Out, "1 aggregate could not be built:\n  a2: ")
			require.Equal(w, map[string]int{"a0": 1, "a1": 1, "a2": 0}, eventsIn(w, "numbered"), "a2 is a stub")
		}
		accepted := w.OperateProjector(set, "build", "--accept-failed")
		require.Zero(w, accepted.Code, accepted.Err)
		require.Contains(w, accepted.Out, "They stay parked")
		parked := w.OperateProjector(set, "parked", "replay", "a2")
		require.Equal(w, 1, parked.Code)
		require.Contains(w, parked.Out+parked.Err, "the aggregate could not be built")
	})
}

// A read model is built, and goes on behind the build, with a program as its projection; a build
// whose program fails or goes away ends, fails no aggregate, and can be continued.
func TestG1G3AProgramsReadModelIsBuilt(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, map[string]projection.Projection{
		"ledger": world.Ledger{}, "timeline": projection.Timeline{},
	}, func(w *world.World, name string, p projection.Projection) {
		g := w.StartProgram(p)
		defer g.End()
		set := func(c *projector.Config, o *projector.Options) {
			builds(name)(c, o)
			g.Runs(name)(c, o)
		}
		indexed(w)
		appendEvents(w, 60, 7)
		w.StartProducer("a", onlyInserts)
		w.Leads("a")
		works := w.Serves(p)
		g.Replace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && g.Posted() > 20 {
				http.Error(w, "out of order", http.StatusInternalServerError)
				return
			}
			works.ServeHTTP(w, r)
		}))
		failing := w.OperateProjector(operated(w, set), "build")
		require.Equal(w, 1, failing.Code)
		require.Contains(w, failing.Err, "does not answer as it must")
		g.Stop()
		require.Equal(w, 1, w.OperateProjector(operated(w, set), "build").Code)
		g.Replace(works)
		built := w.OperateProjector(operated(w, set), "build")
		require.Equal(w, 0, built.Code)
		require.Contains(w, built.Out, name+" from shop.events: 60 events of 7 aggregates built")
		w.StartProjector(set)
		appendEvents(w, 21, 7)
		w.Completed(21)
		require.Equal(w, 0, w.OperateProjector(set, "verify").Code)
		if name == "timeline" {
			require.Equal(w, 0, w.OperateProjector(operated(w, set), "repair", "a3").Code)
			require.Equal(w, 0, w.OperateProjector(set, "verify").Code)
		}
	})
}
