package pipeline_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// revised counts events of aggregates and of types, and marks what it writes with the version of
// its code.
type revised struct{ code string }

func (revised) Name() string { return "revised" }

func (revised) Collections() []projection.Collection {
	return []projection.Collection{{Name: "accounts", KeyedBy: projection.ByAggregate}, {Name: "types"}}
}

func (r revised) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{
		projection.Update("accounts", e.Aggregate, projection.Inc("events", 1), projection.Set("code", r.code)),
		projection.Update("types", e.Type, projection.Inc("events", 1), projection.Set("code", r.code)),
	}, nil
}

// version has the settings of one version of the projection revised, with its own code.
func version(v int) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		setting := "revised"
		if v > 1 {
			setting = fmt.Sprintf("revised:%d", v)
		}
		builds(setting, revised{fmt.Sprint("code ", v)})(c, o)
		c.WatchProcesses = true
	}
}

// twoVersions is a world in which version 1 and version 2, which was built, both follow the source.
func twoVersions(w *world.World, events int) {
	w.Helper()
	subscribe(w, "revised-v2")
	w.StartProjector(version(1))
	begun(w, events)
	require.Zero(w, w.OperateProjector(operated(w, version(2)), "build").Code)
	w.StartProjector(version(2))
	w.Eventually("both versions have all events", func() bool {
		return eventsOf(w, "types", "Counted") == events && eventsOf(w, "types_v2", "Counted") == events
	})
}

func command(w *world.World, v int, args ...string) world.Operated {
	w.Helper()
	return w.OperateProjector(operated(w, version(v)), args...)
}

// A new version of a projection that is a program is another program under the same name: it is
// built beside the old one, and switched to.
func TestG3ANewVersionOfAProgramIsBuiltAndSwitchedTo(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		const events = 30
		subscribe(w, "revised-v2")
		old, endOld := asProgram(w, revised{"code 1"}, "revised")
		defer endOld()
		next, endNext := asProgram(w, revised{"code 2"}, "revised:2")
		defer endNext()
		operate := func(set func(*projector.Config, *projector.Options), args ...string) {
			require.Zero(w, w.OperateProjector(operated(w, set), args...).Code)
		}
		w.StartProjector(old)
		begun(w, events)
		operate(next, "build")
		w.StartProjector(next)
		current := func() (codes []string) {
			cursor, err := w.Client.Database(world.ReadModel).Collection("accounts_current").Find(w.Context(), bson.D{})
			require.NoError(w, err)
			for cursor.Next(w.Context()) {
				codes = append(codes, cursor.Current.Lookup("code").StringValue())
			}
			return codes
		}
		for v, set := range map[int]func(*projector.Config, *projector.Options){1: old, 2: next} {
			appendEvent(w, "a0")
			w.Eventually("both versions have all events", func() bool {
				return eventsOf(w, "accounts", "a0") == w.Inserted["a0"] && eventsOf(w, "accounts_v2", "a0") == w.Inserted["a0"]
			})
			operate(set, "switch", "revised", "--to", fmt.Sprint(v))
			code := fmt.Sprint("code ", v)
			require.Equal(w, []string{code, code, code}, current())
			operate(set, "verify")
		}
	})
}

// A reader of a view sees all documents of exactly one version in each of its reads, while the
// views are switched back and forth beside writers.
func TestG3AReaderOfAViewSeesExactlyOneVersion(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		const aggregates = 3
		twoVersions(w, 3*aggregates)
		require.Zero(w, command(w, 1, "switch", "revised", "--to", "1").Code)
		model := w.Client.Database(world.ReadModel)
		random := seeded(w)
		stopWriter := beside(func() time.Duration { return time.Duration(random.IntN(int(2 * time.Second))) },
			func() { appendEvent(w, fmt.Sprint("a", random.IntN(aggregates))) })
		seen := map[string]int{}
		stopReader := beside(func() time.Duration { return time.Millisecond }, func() {
			cursor, err := model.Collection("accounts_current").Find(w.Context(), bson.D{}, options.Find().SetBatchSize(2))
			require.NoError(w, err)
			var docs []struct {
				Code string `bson:"code"`
			}
			require.NoError(w, cursor.All(w.Context(), &docs))
			require.Len(w, docs, aggregates)
			for _, doc := range docs {
				require.Equal(w, docs[0].Code, doc.Code)
			}
			seen[docs[0].Code]++
		})
		for range 5 {
			for _, v := range []int{2, 1} {
				w.DelayMongo(4, 15*time.Millisecond, "collMod", "create", "drop")
				require.Zero(w, command(w, v, "switch", "revised", "--to", fmt.Sprint(v)).Code)
				w.Pass(time.Second)
			}
		}
		stopWriter()
		stopReader()
		require.Len(w, seen, 2, seen)
	})
}

// A version that is not known to be right is not shown to readers unless an operator forces it, and
// one without a finished build never is.
func TestG6AVersionThatIsNotRightIsNotShown(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		model := w.Client.Database(world.ReadModel)
		twoVersions(w, 9)
		refused := func(v int, want string, args ...string) {
			w.Helper()
			answer := command(w, v, append([]string{"switch", "revised"}, args...)...)
			require.NotZero(w, answer.Code)
			require.Contains(w, answer.Err, want)
			views, err := model.ListCollectionNames(w.Context(), bson.D{{Key: "type", Value: "view"}})
			require.NoError(w, err)
			require.Empty(w, views, "nothing was switched")
		}
		refused(2, "needs --to: a version of the projection, 1 or more")
		refused(1, "the settings are those of version 1 of revised, and this is about version 2 of revised", "--to", "2")
		refused(3, "version 3 of revised has no build: run projector build first", "--to", "3", "--force")

		_, err := model.Collection("revised_v2_build").UpdateOne(w.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "building"}}}})
		require.NoError(w, err)
		refused(2, "the build of version 2 of revised has not ended (building)", "--to", "2", "--force")
		_, err = model.Collection("revised_v2_build").UpdateOne(w.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "built"}}}})
		require.NoError(w, err)

		_, err = model.Collection("accounts_v2").UpdateOne(w.Context(), bson.D{{Key: "_id", Value: "a1"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "events", Value: 7}}}})
		require.NoError(w, err)
		refused(2, "version 2 of revised is not as the source, so nothing was switched", "--to", "2")

		require.NoError(w, model.CreateCollection(w.Context(), "types_current"))
		refused(2, "types_current is a collection, and should be a view", "--to", "2", "--force")
		require.NoError(w, model.Collection("types_current").Drop(w.Context()))

		answer := w.OperateProjector(operated(w, builds("undeclared", undeclared{})), "switch", "undeclared", "--to", "1")
		require.Equal(w, 1, answer.Code)
		require.Contains(w, answer.Err, "does not declare its collections, so no views can show them: implement projection.Stored")

		forced := command(w, 2, "switch", "revised", "--to", "2", "--force")
		require.Zero(w, forced.Code, forced.Err)
		require.Equal(w, "accounts_current shows accounts_v2 (a new view: grant the readers access to it)\n"+
			"types_current shows types_v2 (a new view: grant the readers access to it)\n", forced.Out)
		status := command(w, 1, "status")
		require.Regexp(w, `\nreaders see +accounts_current of accounts_v2\nreaders see +types_current of types_v2\n`, status.Out)
		require.NoError(w, w.Bus.RemoveSubscription(world.Topic, world.Subscription))
		gone := command(w, 1, "switch", "revised", "--to", "1")
		require.Equal(w, 1, gone.Code)
		require.Contains(w, gone.Err, "version 1 of revised does not follow the source any more")
		shown := command(w, 1, "switch", "revised", "--to", "1", "--force", "--json")
		require.JSONEq(w, `{"projection": "revised", "version": 1, "views": [{"view": "accounts_current", "shows": "accounts", "before": "accounts_v2"},
			{"view": "types_current", "shows": "types", "before": "types_v2"}]}`, shown.Out)
	})
}

// undeclared does not declare the collections that it writes to.
type undeclared struct{}

func (undeclared) Name() string { return "undeclared" }
func (undeclared) Project(projection.Event) ([]projection.Write, error) {
	return nil, nil
}

// A view leaves out the stub of an aggregate whose first event could not be applied.
func TestAViewLeavesStubsOut(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		begun(w, 9)
		appendEvent(w, "poisoned", bson.E{Key: "poison", Value: true})
		set := operated(w, builds("sick", sick{}))
		require.Zero(w, w.OperateProjector(set, "build", "--accept-failed").Code)
		require.Zero(w, w.OperateProjector(set, "switch", "sick", "--to", "1", "--force").Code)
		require.Equal(w, 4, count(w, "sick"))
		require.Equal(w, 3, count(w, "sick_current"))
	})
}

// A version is dropped only when no reader sees it and no subscription keeps events for it; its
// projectors then end, and none creates its collections again.
func TestG6AVersionInUseIsNotDropped(t *testing.T) {
	blind := servicebus.Key{Name: "sender", Value: "SENDER_VALUE", Rights: servicebus.Send}
	keys := []servicebus.Key{servicebus.RootKey(), blind}
	world.InVirtualTime(t, world.Options{Since: "5.0", Bus: servicebus.Options{Keys: keys}}, func(w *world.World) {
		twoVersions(w, 9)
		old := w.Projectors[0]
		require.Zero(w, command(w, 1, "switch", "revised", "--to", "1").Code)
		_, err := w.Client.Database(world.ReadModel).Collection("revised_parked").InsertOne(w.Context(), bson.D{{Key: "_id", Value: "of a pack"}})
		require.NoError(w, err)
		collections := func() (names []string) {
			names, err := w.Client.Database(world.ReadModel).ListCollectionNames(w.Context(), bson.D{{Key: "name", Value: bson.D{
				{Key: "$in", Value: bson.A{"accounts", "types", "revised_parked", "revised_positions", "revised_processes"}},
			}}})
			require.NoError(w, err)
			return names
		}
		refused := func(want string, args ...string) {
			w.Helper()
			answer := command(w, 1, append([]string{"drop", "revised"}, args...)...)
			require.NotZero(w, answer.Code)
			require.Contains(w, answer.Err+answer.Out, want)
			require.Len(w, collections(), 5)
		}
		refused("needs --version: a version of the projection, 1 or more", "--yes")
		refused("the settings are those of version 1 of revised, and this is about version 2", "--version", "2", "--yes")
		refused("readers use version 1 of revised: the view accounts_current shows accounts. Switch to another version first: "+
			"projector switch revised --to VERSION", "--version", "1", "--yes")
		require.Zero(w, command(w, 2, "switch", "revised", "--to", "2").Code)
		refused("exists, and without a reader it fills its topic: delete it first", "--version", "1", "--yes")

		without := func(args ...string) world.Operated {
			return w.OperateProjector(func(c *projector.Config, o *projector.Options) {
				operated(w, version(1))(c, o)
				names := strings.NewReplacer(keys[0].Name, blind.Name, keys[0].Value, blind.Value)
				c.ServiceBus.ConnectionString = names.Replace(c.ServiceBus.ConnectionString)
			}, append([]string{"drop", "revised", "--version", "1"}, args...)...)
		}
		require.Contains(w, without().Err, "whether changes/projector is deleted is not known, because this identity may not ask")
		require.Contains(w, without("--subscription-deleted").Out, "Nothing is dropped yet")
		appendEvent(w, "a0") // version 1 may be handling it
		require.NoError(w, w.Bus.RemoveSubscription(world.Topic, world.Subscription))
		refused("would drop accounts (about 3 documents)\nwould drop revised_parked (about 1 document)\nwould drop revised_positions (about 3 documents)\n"+
			"would drop revised_processes (about 1 document)\nwould drop types (about 1 document)\n"+
			"Nothing is dropped yet. To go on: projector drop revised --version 1 --yes\n", "--version", "1")
		var dropped world.Operated
		var dropping sync.WaitGroup
		dropping.Go(func() { dropped = command(w, 1, "drop", "revised", "--version", "1", "--yes") })
		w.Eventually("the collections are gone", func() bool { return len(collections()) == 0 })
		require.NotEmpty(w, old.Done, "its projector ended before")
		dropping.Wait()
		require.Zero(w, dropped.Code, dropped.Err)
		require.Contains(w, dropped.Out, "dropped accounts (about 3 documents)\n")
		require.Empty(w, collections())
		_, err = old.End()
		require.ErrorContains(w, err, "this version of the projection was dropped")

		restarted := w.StartProjector(version(1))
		w.Eventually("a projector that starts ends", func() bool { return len(restarted.Done) > 0 })
		_, err = restarted.End()
		require.ErrorContains(w, err, "this version of the projection was dropped")
		require.Empty(w, collections())
		for _, again := range [][]string{{"build"}, {"switch", "revised", "--to", "1", "--force"}} {
			answer := command(w, 1, again...)
			require.Equal(w, 1, answer.Code)
			require.Contains(w, answer.Err+answer.Out, "this version of the projection was dropped", again)
		}
		require.Empty(w, collections())
		w.Eventually("version 2 goes on", func() bool { return eventsOf(w, "types_current", "Counted") == 10 })
		again := command(w, 1, "drop", "revised", "--version", "1", "--yes")
		require.Zero(w, again.Code, again.Err)
		require.Equal(w, "version 1 of revised has no collections any more\n", again.Out)
	})
}
