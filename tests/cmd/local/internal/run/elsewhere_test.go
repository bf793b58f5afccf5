package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// external returns a run whose source is in a MongoDB that is not ours; its read model is a
// database beside it.
func external(t *testing.T) (*runner, *data) {
	t.Helper()
	servers := emulator.Start(t, emulator.Options{})
	client, err := mongo.Connect(options.Client().ApplyURI(servers.Endpoint(emulator.EnvMongo)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(t.Context())) })
	r := &runner{options: flags.Options{External: true, Projection: flags.Mirror}, rec: history.NewRecorder()}
	return r, &data{client: client, source: client.Database("shop").Collection("events"), readModel: client.Database("read")}
}

func insert(t *testing.T, c *mongo.Collection, documents ...any) {
	t.Helper()
	_, err := c.InsertMany(t.Context(), documents)
	require.NoError(t, err)
}

// Events that an election removed from the source are named, and the services are not blamed for
// them.
func TestGapsOfTheSourceAreDistinguishedFromLosses(t *testing.T) {
	t.Parallel()
	r, data := external(t)
	for _, c := range []history.Commit{{Aggregate: "a", Version: 1}, {Aggregate: "a", Version: 2}, {Aggregate: "b", Version: 1}, {Aggregate: "a", Version: 3}} {
		r.rec.Commit(c)
	}
	insert(t, data.source,
		bson.D{{Key: "aggregateId", Value: "a"}, {Key: "version", Value: 1}}, bson.D{{Key: "aggregateId", Value: "b"}, {Key: "version", Value: 1}})
	held, gaps, err := r.sourceGaps(t.Context(), data, r.rec.History().Committed)
	require.NoError(t, err)
	require.Equal(t, []history.Commit{{Aggregate: "a", Version: 1}, {Aggregate: "b", Version: 1}}, held)
	require.Equal(t, []string{"2 of the 4 events that were inserted, of 1 aggregate", "a: version 2 3"}, gaps)

	require.NoError(t, r.beyondSource(t.Context(), data, true), "something is still to come")
	r.loaded.Store(true)
	require.NoError(t, r.beyondSource(t.Context(), data, true), "nothing is to be seen yet")
	r.rec.See("a", 1, time.Now())
	r.rec.See("b", 1, time.Now())
	err = r.beyondSource(t.Context(), data, true)
	require.ErrorIs(t, err, errHopeless)
	require.ErrorContains(t, err, "the source holds 2 of the 4 events")
	require.True(t, givenUp(err), "what there is of it is checked")
}

// A document that differs from its source is shown with what differs, and with types where the
// values look alike.
func TestAMirrorsDifferencesAreShownWithTypes(t *testing.T) {
	t.Parallel()
	_, data := external(t)
	copied := data.readModel.Collection(flags.Mirror)
	insert(t, data.source, bson.D{{Key: "_id", Value: 17}, {Key: "n", Value: 1}, {Key: "s", Value: "x"}}, bson.D{{Key: "_id", Value: "17"}, {Key: "a", Value: 1}, {Key: "b", Value: 2}})
	insert(t, copied, bson.D{{Key: "_id", Value: 17}, {Key: "n", Value: "1"}, {Key: "s", Value: "y"}}, bson.D{{Key: "_id", Value: "17"}, {Key: "b", Value: 2}, {Key: "a", Value: 1}})
	c, applied, err := compareMirror(t.Context(), data)
	require.NoError(t, err)
	require.EqualValues(t, 2, applied)
	require.Equal(t, 2, c.Mismatches)
	require.Contains(t, c.Differences[0], `differs from its source: n is "1" (string), expected 1 (32-bit integer); s is "y", expected "x"`)
	require.Contains(t, c.Differences[1], "differs from its source in the order of its fields")
}

// An insert that only one member has accepted may be rolled back by an election, so it is not
// counted, whatever the URI sets.
func TestWhatIsCountedAsInsertedSurvivesAnElection(t *testing.T) {
	t.Parallel()
	require.Equal(t, writeconcern.Majority(), toMongo("mongodb://localhost/?w=1").WriteConcern)
}

// A waiting run reports what it waits for.
func TestAWaitingRunReportsWhatIsMissing(t *testing.T) {
	t.Parallel()
	r, _ := external(t)
	r.options.Chaos = []chaos.Action{{Kind: chaos.KillLeader}}
	commit(r, 3)
	require.Equal(t, "not all events are inserted; 3 of 3 are not to be seen in the read model; not all harm of --chaos is over", r.missing())
	r.loaded.Store(true)
	r.rec.See("a", 1, time.Now())
	r.failovers.allDone.Store(true)
	require.Equal(t, "2 of 3 are not to be seen in the read model", r.missing())
	r.producers = []*child.Slot{{Name: "producer-1"}}
	require.Contains(t, r.missing(), "; no answer from producer-1")
	require.Equal(t, "no answer from producer-1; no producer leads with an open change stream; our own look at the read model does not open", r.awaited())
}

// The user is reminded soon after everything stood still for a while, but not all the time.
func TestARunThatStandsStillRemindsOfWhatIsMissing(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var m reminder
		require.False(t, m.due(remindAfter-time.Millisecond))
		require.True(t, m.due(remindAfter))
		require.False(t, m.due(remindAfter+time.Second))
		time.Sleep(remindEvery) // virtual
		require.True(t, m.due(remindAfter+remindEvery))
	})
}
