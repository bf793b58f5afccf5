package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// commands counts what a client sends, by name, and the guards that it has read, as "guard".
type commands struct {
	sync.Mutex
	sent    map[string]int
	streams int  // change streams that were opened
	early   bool // a find was sent before one was open
}

func (c *commands) watch(o *options.ClientOptions) {
	c.sent = map[string]int{}
	o.SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			c.Lock()
			defer c.Unlock()
			c.sent[e.CommandName]++
			id, _ := e.Command.Lookup("filter", "_id").StringValueOK() // of a guard
			c.early = c.early || e.CommandName == "find" && id != "" && c.streams == 0
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			c.Lock()
			defer c.Unlock()
			switch e.CommandName {
			case "aggregate":
				c.streams++
			case "find":
				if id, _ := e.Reply.Lookup("cursor", "firstBatch", "0", "_id").StringValueOK(); id != "" {
					c.sent["guard"]++
				}
			}
		},
	})
}

func (c *commands) count(name string) int {
	c.Lock()
	defer c.Unlock()
	return c.sent[name]
}

// guard writes the guard of an aggregate as a projector does, with more fields beside it.
func guard(t *testing.T, c *mongo.Collection, embedded bool, aggregate string, version int64, more ...bson.E) {
	t.Helper()
	prefix := ""
	if embedded {
		prefix = projection.GuardField + "."
	}
	set := bson.D{{Key: prefix + "position", Value: fmt.Sprintf("82%06d", version)}, {Key: prefix + "version", Value: version}}
	for _, e := range more {
		set = append(set, bson.E{Key: prefix + e.Key, Value: e.Value})
	}
	_, err := c.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: aggregate}}, bson.D{{Key: "$set", Value: set}}, options.UpdateOne().SetUpsert(true))
	require.NoError(t, err)
}

// A query that waits for the version of a command sees its effect: whichever form the guard has,
// whether the effect came before or comes after, and with one change stream for all callers of the
// process and without polling. MONGODB_URI names the server.
func TestWaitSeesTheEffectAsTheServerDoes(t *testing.T) {
	for name, test := range map[string]struct {
		awaited    projection.Awaited
		guards     string
		collection string
		embedded   bool
	}{
		"in the document":           {projection.Awaited{Projection: "timeline"}, "timeline", "timeline", true},
		"in a record":               {projection.Awaited{Projection: "orders"}, "orders_positions", "orders", false},
		"of a version":              {projection.Awaited{Projection: "orders:2"}, "orders_v2_positions", "orders_v2", false},
		"in a version's documents":  {projection.Awaited{Projection: "timeline:2"}, "timeline_v2", "timeline_v2", true},
		"of another collection":     {projection.Awaited{Projection: "shop", Collection: "customers"}, "customers", "customers", true},
		"of a stream beside others": {projection.Awaited{Projection: "orders", Stream: "shop.returns"}, "orders_positions", "orders", false},
	} {
		t.Run(name, func(t *testing.T) {
			var sent commands
			database := emptyDatabase(t, mongoClient(t, sent.watch))
			guards := database.Collection(test.guards)
			of := func(version int64) (int64, []bson.E) {
				if test.awaited.Stream == "" {
					return version, nil
				}
				return 1000, []bson.E{
					{Key: "stream", Value: "shop.events"},
					{Key: "streams." + projection.EscapeKey(test.awaited.Stream), Value: bson.D{{Key: "position", Value: "82"}, {Key: "version", Value: version}}},
				}
			}
			put := func(aggregate string, version int64) {
				v, more := of(version)
				guard(t, guards, test.embedded, aggregate, v, more...)
			}
			put("a", 3)
			awaited := test.awaited
			awaited.Aggregate, awaited.Version = "a", 3
			effect, err := projection.Wait(t.Context(), database, awaited)
			require.NoError(t, err)
			require.Equal(t, test.collection, effect.Collection)
			require.EqualValues(t, 3, effect.Version)
			require.NotZero(t, effect.OperationTime.T)
			require.False(t, sent.early, "the guard was read before the stream was open, so an effect in between is missed")

			const callers = 50
			var waiting sync.WaitGroup
			finds := sent.count("find")
			effects, errs := make([]projection.Effect, callers), make([]error, callers)
			for i := range callers {
				waiting.Go(func() {
					own := awaited
					own.Aggregate, own.Version = fmt.Sprint("later", i%2), 7
					effects[i], errs[i] = projection.Wait(t.Context(), database, own)
				})
			}
			require.Eventually(t, func() bool { return sent.count("find") == finds+callers }, 20*time.Second, time.Millisecond)
			put("other", 9)
			for version := range int64(7) {
				put("later0", version+1)
				put("later1", version+1)
			}
			waiting.Wait()
			for i := range callers {
				require.NoError(t, errs[i])
				require.EqualValues(t, 7, effects[i].Version)
			}
			require.Equal(t, 1, sent.streams, "change streams")
			require.LessOrEqual(t, sent.count("find"), finds+callers+callers*7, "a guard is read when it has changed")
		})
	}
}

// What cannot come is an error: at once if the aggregate is parked, and otherwise with how far it
// is applied.
func TestWaitThatCannotEndIsAnErrorAsTheServerDoes(t *testing.T) {
	database := emptyDatabase(t, mongoClient(t))
	positions := database.Collection("orders_positions")
	guard(t, positions, false, "parked", 3, bson.E{Key: "parked", Value: bson.D{{Key: "reason", Value: "ProjectionFailed"}, {Key: "description", Value: "poison"}}})
	guard(t, positions, false, "late", 3)

	var parked *projection.ParkedError
	_, err := projection.Wait(t.Context(), database, projection.Awaited{Projection: "orders", Aggregate: "parked", Version: 4})
	require.ErrorAs(t, err, &parked)
	require.Equal(t, projection.ParkedError{Aggregate: "parked", Reason: "ProjectionFailed", Description: "poison"}, *parked)
	_, err = projection.Wait(t.Context(), database, projection.Awaited{Projection: "orders", Aggregate: "parked", Version: 3})
	require.NoError(t, err, "it was applied before")

	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = projection.Wait(short, database, projection.Awaited{Projection: "orders", Aggregate: "late", Version: 4})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "version 4 of aggregate late has no effect in projection orders yet: it is applied up to version 3, position 82000003. The event may be on its way")
	var notYet *projection.NotYetError
	require.ErrorAs(t, err, &notYet)
	require.EqualValues(t, 3, notYet.Last.Version)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, err = projection.Wait(ctx, database, projection.Awaited{Projection: "orders", Aggregate: "late", Position: "82000004"})
	})
	guard(t, positions, false, "late", 3, bson.E{Key: "parked", Value: bson.D{{Key: "reason", Value: "Undecided"}}})
	waiting.Wait()
	require.ErrorAs(t, err, &parked, "it is parked while the caller waits")

	for what, wrong := range map[string]projection.Awaited{
		"Aggregate and one of Version and Position are required": {Projection: "orders", Aggregate: "a"},
		"is not the name of a projection":                        {Projection: "orders:x", Aggregate: "a", Version: 1},
		"has neither other_positions nor other":                  {Projection: "other", Aggregate: "a", Version: 1},
	} {
		_, err := projection.Wait(t.Context(), database, wrong)
		require.ErrorIs(t, err, projection.ErrInvalid)
		require.ErrorContains(t, err, what)
	}
}

// Readers of a view wait for the version that the view shows, also if it is switched while they
// wait.
func TestWaitFollowsTheViewAsTheServerDoes(t *testing.T) {
	var sent commands
	database := emptyDatabase(t, mongoClient(t, sent.watch))
	one, two := database.Collection("timeline"), database.Collection("timeline_v2")
	guard(t, one, true, "a", 3)
	guard(t, two, true, "a", 2)
	require.NoError(t, database.CreateView(t.Context(), "timeline_current", "timeline", mongo.Pipeline{}))
	effect, err := projection.Wait(t.Context(), database, projection.Awaited{Projection: "timeline", Aggregate: "a", Version: 3})
	require.NoError(t, err)
	require.Equal(t, "timeline", effect.Collection)

	finds := sent.count("find")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		effect, err = projection.Wait(t.Context(), database, projection.Awaited{Projection: "timeline", Aggregate: "a", Version: 4})
	})
	require.Eventually(t, func() bool { return sent.count("find") > finds }, 20*time.Second, time.Millisecond)
	require.NoError(t, database.Collection("timeline_current").Drop(t.Context()))
	require.NoError(t, database.CreateView(t.Context(), "timeline_current", "timeline_v2", mongo.Pipeline{}))
	guard(t, one, true, "a", 4)
	guard(t, two, true, "a", 4)
	waiting.Wait()
	require.NoError(t, err)
	require.Equal(t, "timeline_v2", effect.Collection)
}

// A wait ends with an error as soon as its client is disconnected, and so does the change stream.
func TestAWaitEndsWithItsClient(t *testing.T) {
	var o *options.ClientOptions
	database := emptyDatabase(t, mongoClient(t, func(given *options.ClientOptions) { o = given }))
	guard(t, database.Collection("orders_positions"), false, "a", 3)
	var sent commands
	sent.watch(o)
	client, err := mongo.Connect(o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := projection.Wait(ctx, client.Database(database.Name()), projection.Awaited{Projection: "orders", Aggregate: "a", Version: 4})
		ended <- err
	}()
	require.Eventually(t, func() bool { return sent.count("guard") > 0 }, 10*time.Second, time.Millisecond, "the guard was read")
	require.NoError(t, client.Disconnect(t.Context()))
	err = <-ended
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the wait lasted until its time was over")
}
