package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// slowBuild is a build that reads one document a second.
type slowBuild struct {
	code  int
	out   string
	ended sync.WaitGroup
}

// startBuild starts a build, as a process that is killed when ctx ends.
func startBuild(ctx context.Context, w *world.World, set func(*projector.Config, *projector.Options), args ...string) *slowBuild {
	b := &slowBuild{}
	b.ended.Go(func() { b.code, b.out = buildUntil(ctx, w, set, append([]string{"--rate", "1"}, args...)...) })
	return b
}

// building returns a build of the projection ledger that is in its middle.
func building(w *world.World) *slowBuild {
	w.Helper()
	b := startBuild(w.Context(), w, builds("ledger"), "--chunk", "3")
	w.Eventually("the first range is recorded", func() bool {
		recorded, err := w.Client.Database(world.ReadModel).Collection("ledger_build").CountDocuments(w.Context(), bson.D{{Key: "ranges", Value: 1}})
		require.NoError(w, err)
		return recorded == 1
	})
	require.Equal(w, 3, eventsOf(w, "accounts", "a0"))
	return b
}

func (b *slowBuild) end() (code int, out string) {
	b.ended.Wait()
	return b.code, b.out
}

// G1, G3: transient faults in the middle of a build are waited out, and the read model then has
// each event once.
func TestG3ABuildOutlastsWhatPasses(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, map[string]func(w *world.World, plug *world.Plug){
		"the source is unreachable": func(w *world.World, plug *world.Plug) {
			plug.Pull()
			w.Pass(5 * time.Minute)
			plug.PlugIn()
		},
		"its disk is full":    failing(14031, "insert", "update", "commitTransaction"),
		"it is not primary":   failing(10107, "insert", "update", "commitTransaction"),
		"it is stepping down": failing(189, "insert", "update", "commitTransaction"),
	}, func(w *world.World, _ string, trouble func(w *world.World, plug *world.Plug)) {
		begun(w, 9)
		plug := &world.Plug{}
		w.OperatorMongo = plug.Dialer(w.OperatorMongo)
		b := building(w)
		trouble(w, plug)
		code, out := b.end()
		require.Zero(w, code, out)
		require.Equal(w, w.Inserted, eventsIn(w, "accounts"))
		require.Equal(w, 9, eventsOf(w, "totals", "all"))
	})
}

// G1, G3: a build of a single range repeats it if its progress cannot be recorded for a while.
func TestG3ABuildOfOneRangeOutlastsWhatPasses(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		w.FailMongo(4, 189, "aggregate", "count")
		code, out := buildUntil(w.Context(), w, builds("ledger"))
		require.Zero(w, code, out)
		require.Equal(w, 9, eventsOf(w, "totals", "all"))
	})
}

// G1, G3: of an aggregate with several documents, a build that is killed while it writes them
// leaves all or nothing.
func TestG3ABuildKilledWhileItWritesLeavesAllOrNothing(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		w.Producers[0].End()
		ctx, kill := context.WithCancel(w.Context())
		defer kill()
		b := startBuild(ctx, w, builds("ledger"), "--chunk", "3")
		w.Eventually("the first aggregate is built", func() bool { return eventsOf(w, "accounts", "a0") == 3 })
		w.Pass(time.Second)
		w.DelayMongo(1, time.Minute, "update")
		w.Pass(10 * time.Second)
		kill()
		code, out := b.end()
		require.Equal(w, 1, code, out)
		require.Equal(w, 3, eventsOf(w, "totals", "all"), "it was killed while it wrote the second aggregate")
		w.Pass(2 * time.Minute) // after which the server has given the transaction up
		code, out = buildUntil(w.Context(), w, builds("ledger"))
		require.Zero(w, code, out)
		require.Equal(w, 9, eventsOf(w, "totals", "all"))
	})
}

func failing(code int, commands ...string) func(*world.World, *world.Plug) {
	return func(w *world.World, _ *world.Plug) { w.FailMongo(20, code, commands...) }
}

// G1, G3: a range that can no longer be read as of its time is read again as of another one, as a
// whole.
func TestG3ARangeThatIsTooOldIsReadAgain(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, map[string]int{
		"the history is shorter": mongodb.SnapshotTooOld, "an index was created": mongodb.SnapshotUnavailable,
		"a chunk was moved": mongodb.StaleChunkHistory, "the member has not seen the time": mongodb.InvalidOptions,
	}, func(w *world.World, _ string, gone int) {
		begun(w, 9)
		w.Producers[0].End() // so that no other cursor is read
		const events = 300   // more than a server returns at once
		appendAtOnce(w, "large", events)
		b := building(w)
		status := w.OperateProjector(operated(w, builds("ledger")), "status")
		require.Regexp(w, `\nbuild +building: [0-9]+ events \(of about 309\) of [0-9]+ aggregates? in [0-9]+ ranges?, at `, status.Out)
		w.FailMongo(3, gone, "getMore")
		code, out := b.end()
		require.Zero(w, code, out)
		require.Equal(w, events, eventsOf(w, "accounts", "large"))
		require.Equal(w, 9+events, eventsOf(w, "totals", "all"))
	})
}

// G1, G3, G5: ranges that are too old whenever they are read are halved, down to one aggregate. One
// that the source never holds for long enough is not built, and all others are.
func TestG5AnAggregateThatIsAlwaysTooOldIsLeftOut(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		w.Producers[0].End() // so that no other cursor is read
		const large, most = 300, 101
		for aggregate, events := range map[string]int{"b": most / 2, "c": most / 2, "d": large, "e": most / 2, "f": most / 2} { // a server returns 101 at once
			appendAtOnce(w, aggregate, events)
		}
		w.FailMongo(60, mongodb.SnapshotTooOld, "getMore")
		code, out := buildUntil(w.Context(), w, builds("ledger"), "--chunk", "200")
		require.Equal(w, 1, code, out)
		require.Contains(w, out, "1 aggregate could not be built:\n  d: its documents were read 3 times, and each time the source had dropped that moment before the read ended")
		require.Contains(w, out, "Raise minSnapshotHistoryWindowInSeconds of the source")
		require.Equal(w, 9+4*(most/2), eventsOf(w, "totals", "all"))
		w.FailMongo(0, mongodb.SnapshotTooOld, "getMore")
		require.Zero(w, w.OperateProjector(operated(w, builds("ledger")), "build").Code)
		require.Equal(w, large, eventsOf(w, "accounts", "d"))
		require.Equal(w, 9+4*(most/2)+large, eventsOf(w, "totals", "all"))
	})
}

// G6: a source that refuses every read as of a cluster time ends the build with its own reason,
// instead of each aggregate being left out after three attempts.
func TestG6ASourceThatRefusesClusterTimesEndsTheBuild(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		w.Producers[0].End() // so that no other cursor is read
		const events = 300   // more than a server returns at once
		appendAtOnce(w, "large", events)
		w.FailMongo(1000, mongodb.InvalidOptions, "getMore")
		code, out := buildUntil(w.Context(), w, builds("ledger"))
		require.Equal(w, 1, code, out)
		require.Contains(w, out, "the source refused 3 times to read documents as of a cluster time")
		require.NotContains(w, out, "could not be built", "it is not the aggregate's fault")
		w.FailMongo(0, mongodb.InvalidOptions, "getMore")
		require.Zero(w, w.OperateProjector(operated(w, builds("ledger")), "build").Code)
		require.Equal(w, 9+events, eventsOf(w, "totals", "all"))
	})
}

// G3: if the stream has a name of its own, the guards of a build are of that stream, so its events
// that wait are recognised.
func TestG3ABuildBesideANamedStreamHasEachEventOnce(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexed(w)
		w.StartProducer("a", func(c *producer.Config, o *producer.Options) {
			onlyInserts(c, o)
			c.Stream = "sales"
		})
		set := func(c *projector.Config, o *projector.Options) {
			builds("ledger")(c, o)
			c.Stream = "sales"
		}
		w.Eventually("the stream has begun", func() bool { return w.CheckpointOf("sales").Token != nil })
		appendEvents(w, 9, 3)
		w.Eventually("all is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 9 })
		code, out := buildUntil(w.Context(), w, set)
		require.Zero(w, code, out)
		w.StartProjector(set)
		appendEvent(w, "a1")
		w.Completed(10)
		require.Equal(w, 10, eventsOf(w, "totals", "all"))
	})
}

// paid keeps a document of each aggregate that was paid.
type paid struct{}

func (paid) Name() string       { return "paid" }
func (paid) Collection() string { return "paid" }
func (paid) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type != "Paid" {
		return nil, nil
	}
	return []projection.Write{projection.Update("paid", e.Aggregate, projection.Inc("events", 1))}, nil
}

// G5: an aggregate whose events had no effect is known after a build, so its next version is not
// missed for want of the versions before it. A version that is left out behind a build is noticed.
func TestG5AnAggregateWithoutEffectsIsKnownAfterABuild(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		set := func(c *projector.Config, o *projector.Options) {
			builds("paid", paid{})(c, o)
			c.VersionFirst, c.VersionGapWait = 1, time.Second
		}
		code, out := buildUntil(w.Context(), w, set)
		require.Zero(w, code, out)
		w.StartProjector(set)
		w.InsertDocument(bson.D{{Key: "aggregateId", Value: "a1"}, {Key: "version", Value: 4}, {Key: "type", Value: "Paid"}})
		w.Completed(10)
		require.Equal(w, 1, eventsOf(w, "paid", "a1"))
		w.InsertDocument(bson.D{{Key: "aggregateId", Value: "a2"}, {Key: "version", Value: 5}, {Key: "type", Value: "Paid"}})
		w.Eventually("it is set aside", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 1 })
	})
}

// sized keeps a text of each event in one document.
type sized struct{ bytes int }

func (sized) Name() string       { return "sized" }
func (sized) Collection() string { return "sized" }
func (s sized) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update("sized", e.Aggregate, projection.Inc("events", 1), projection.Set("text", strings.Repeat("x", s.bytes)))}, nil
}

// G3: ranges end early if their effects are large, so that memory is bounded, and each aggregate is
// built once.
func TestG3LargeEffectsMakeSmallRanges(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		set := builds("sized", sized{5 << 20})
		code, out := buildUntil(w.Context(), w, set)
		require.Zero(w, code, out)
		require.Equal(w, w.Inserted, eventsIn(w, "sized"))
		status := w.OperateProjector(operated(w, set), "status")
		require.Regexp(w, `\nbuild +built: 9 events of 3 aggregates in [34] ranges`, status.Out)
	})
}

// G1, G6: if the source is dropped or replaced in the middle of a build, the build ends with an
// error, and the version is not built.
func TestG6ABuildOfASourceThatGoesEnds(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, map[string]func(w *world.World){
		"shop.events was dropped while it was read": func(w *world.World) { require.NoError(w, w.Events.Drop(w.Context())) },
		"shop.events was replaced by another collection while it was read": func(w *world.World) {
			require.NoError(w, w.Events.Drop(w.Context()))
			indexed(w)
		},
	}, func(w *world.World, want string, change func(w *world.World)) {
		begun(w, 9)
		b := building(w)
		change(w)
		code, out := b.end()
		require.Equal(w, 1, code)
		require.Contains(w, out, want)
		again := w.OperateProjector(operated(w, builds("ledger")), "build")
		require.Equal(w, 1, again.Code)
		require.Regexp(w, "is not a collection of the source|is another collection than the one from which this build began", again.Err)
	})
}

// G6: if the producer's settings change during a build, or a snapshot begins, the build ends with
// an error, and the version is not built.
func TestG6ABuildWhoseStreamChangesEnds(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, map[string]func(w *world.World){
		"stream shop.events has a PIPELINE": func(w *world.World) {
			w.StartProducer("b", func(c *producer.Config, o *producer.Options) {
				onlyInserts(c, o)
				c.Pipeline = `[{"$match": {"fullDocument.type": "Paid"}}]`
			})
		},
		"a snapshot is being published within stream shop.events": func(w *world.World) {
			indexedForSnapshots(w)
			w.StartProducer("b", onlyInserts)
			w.Leads("b")
			require.Zero(w, snapshotCommand(w, onlyInserts, "start", "--readers-know", "--rate", "1").Code)
		},
	}, func(w *world.World, want string, change func(w *world.World)) {
		begun(w, 180)
		w.Producers[0].End()
		b := startBuild(w.Context(), w, builds("ledger"), "--chunk", "60")
		w.Eventually("the first aggregate is built", func() bool { return eventsOf(w, "accounts", "a0") == 60 })
		change(w)
		w.Leads("b")
		code, out := b.end()
		require.Equal(w, 1, code, out)
		require.Contains(w, out, want)
		require.Contains(w, w.OperateProjector(operated(w, builds("ledger")), "status").Out, "building: ", "it is not built")
	})
}

// G3: two builds of one version at once do the work of one.
func TestG3TwoBuildsAtOnceAreOne(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		appendEvents(w, 90, 30)
		var builders sync.WaitGroup
		for range 2 {
			builders.Go(func() {
				if code, out := buildUntil(w.Context(), w, builds("ledger"), "--chunk", "3"); code != 0 {
					w.Error(out)
				}
			})
		}
		builders.Wait()
		require.Equal(w, w.Inserted, eventsIn(w, "accounts"))
		require.Equal(w, 99, eventsOf(w, "totals", "all"))
	})
}

// G3: an aggregate that is larger than many ranges is built as a whole, in one.
func TestG3AnAggregateOfManyEventsIsOneRange(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, world.Counting, func(w *world.World, setting, collection string) {
		begun(w, 9)
		const events = 5000
		appendAtOnce(w, "a1large", events)
		built := w.OperateProjector(operated(w, builds(setting)), "build", "--chunk", "10", "--json")
		require.Zero(w, built.Code, built.Err)
		require.Equal(w, w.Inserted, eventsIn(w, collection))
		require.Contains(w, built.Out, `"aggregates": 4`)
	})
}

// toAnother reaches another MongoDB by the host name another.
type toAnother struct {
	other *netpipe.Listener
	rest  options.ContextDialer
}

func (d toAnother) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if strings.HasPrefix(address, "another:") {
		return d.other.DialContext(ctx, network, address)
	}
	return d.rest.DialContext(ctx, network, address)
}

// G6: a build does not read from a secondary, which may lack committed documents.
func TestG6ABuildFromASecondaryIsRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		secondary := mongo.New(mongo.Options{})
		secondary.StepDown(time.Hour)
		w.OperatorMongo = toAnother{netpipe.Serve(w.T, secondary.Run), w.OperatorMongo}
		answer := w.OperateProjector(func(c *projector.Config, o *projector.Options) {
			operated(w, builds("ledger"))(c, o)
			c.SourceMongoURI = "mongodb://another:27017/?directConnection=true"
		}, "build")
		require.Equal(w, 1, answer.Code)
		require.Contains(w, answer.Err, "the source is a secondary of the set")
		require.Contains(w, answer.Err, "leave directConnection out of SOURCE_MONGODB_URI")
	})
}

// filling changes the administration's answers: the topic has the given number of bytes.
type filling struct {
	policy.Transporter
	bytes *atomic.Int64
}

func (f filling) Do(r *http.Request) (*http.Response, error) {
	answer, err := f.Transporter.Do(r)
	if err != nil {
		return answer, err //nolint:wrapcheck // as it is
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err //nolint:wrapcheck // as it is
	}
	before, rest, found := bytes.Cut(text, []byte("<SizeInBytes>"))
	if _, after, closed := bytes.Cut(rest, []byte("</SizeInBytes>")); found && closed {
		text = fmt.Appendf(nil, "%s<SizeInBytes>%d</SizeInBytes>%s", before, f.bytes.Load(), after)
	}
	answer.Body = io.NopCloser(bytes.NewReader(text))
	answer.ContentLength = int64(len(text))
	return answer, nil
}

// G1: a build ends before the events that wait for it fill the topic, and names what to delete; and
// it does not go on beside another subscription than the one that has kept the events since it
// began.
func TestG1ABuildEndsBeforeTheTopicIsFull(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		var used atomic.Int64
		way := filling{w.Administered().Transport, &used}
		config := w.ProjectorConfig()
		administration, err := config.ServiceBus.Administer(nil, "", &azcore.ClientOptions{Transport: way})
		require.NoError(w, err)
		create := func() {
			_, err := administration.CreateSubscription(w.Context(), world.Topic, "ledger-v2", &admin.CreateSubscriptionOptions{
				Properties: &admin.SubscriptionProperties{RequiresSession: new(true)},
			})
			require.NoError(w, err)
		}
		create()
		begun(w, 27)
		set := func(c *projector.Config, o *projector.Options) {
			builds("ledger:2")(c, o)
			o.Administration = &azcore.ClientOptions{Transport: way}
		}
		used.Store(800 << 20)
		b := startBuild(w.Context(), w, set, "--chunk", "1", "--json")
		w.Eventually("the first aggregate is built", func() bool { return eventsOf(w, "accounts_v2", "a0") == 9 })
		used.Store(820 << 20)
		code, out := b.end()
		require.Equal(w, 1, code)
		require.Contains(w, out, "changes is 80 % full (820 of 1024 MB), and a full one stops the producer. The events wait in changes/ledger-v2 until the build has ended: "+
			"delete that, and build another version; or let changes grow, and run the command again")
		used.Store(0)

		w.Pass(time.Minute)
		_, err = administration.DeleteSubscription(w.Context(), world.Topic, "ledger-v2", nil)
		require.NoError(w, err)
		create()
		code, out = buildUntil(w.Context(), w, set)
		require.Equal(w, 1, code)
		require.Contains(w, out, "which was deleted with the events that waited in it: build another version")
	})
}

// A build keeps its rate by pauses between its ranges. Within a range it has none, so that the
// source can still be read as of the range's time.
func TestABuildKeepsItsRate(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 27)
		started := time.Now()
		b := startBuild(w.Context(), w, builds("ledger"), "--chunk", "9")
		w.Eventually("the first range is built", func() bool { return eventsOf(w, "accounts", "a0") == 9 })
		require.Less(w, time.Since(started), 5*time.Second, "a range of nine documents has no pause")
		code, out := b.end()
		require.Zero(w, code, out)
		require.GreaterOrEqual(w, time.Since(started), 27*time.Second)
		require.Less(w, time.Since(started), 40*time.Second)
	})
}
