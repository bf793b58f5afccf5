package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// otherWrites writes to the rest of the deployment for ten minutes.
func otherWrites(w *world.World) {
	w.Helper()
	for range 10 {
		w.InsertInto(w.Events.Database().Collection("other"), bson.D{{Key: "x", Value: 1}})
		w.Pass(time.Minute)
	}
}

// G6: a stage of PIPELINE that fails on one document stops the stream. The changes before that
// document are published, and the error has the position behind which it fails.
func TestG6AnErrorOfThePipelineOnADocumentStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		through := func(c *producer.Config, _ *producer.Options) {
			c.Pipeline = `[{"$set": {"fullDocument.n": {"$toInt": "$fullDocument.n"}}}]`
		}
		a := w.StartProducer("a", through)
		b := w.StartProducer("b", through)
		w.Eventually("one of them leads", func() bool { return w.Checkpoint().Token != nil })
		var documents []any
		for n, value := range []any{"1", "2", "3", "no number", "5", "6"} {
			documents = append(documents, bson.D{{Key: "aggregateId", Value: "x"}, {Key: "version", Value: n + 1}, {Key: "n", Value: value}})
		}
		_, err := w.Events.InsertMany(w.Context(), documents)
		require.NoError(w, err)
		otherWrites(w)
		for _, p := range []*world.Producer{a, b} {
			err := p.Failed()
			require.ErrorContains(w, err, "ConversionFailure")
			require.ErrorContains(w, err, "after "+w.Checkpoint().Position)
			require.ErrorContains(w, err, "PIPELINE")
			require.NotContains(w, p.Log.Text(), "MongoDB has not answered for too long")
		}
		require.Len(w, w.Took(), 3)
		require.EqualValues(w, 3, w.Checkpoint().Published)
		operate(w, "status").reports(1, `state +STOPPED`)
	})
}

// G6: the same if the stream opens each time, and only the next request fails.
func TestG6AnErrorOfEveryGetMoreStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startAndPublish(w, "a", nil, 10, 2)
		w.FailMongo(1_000_000, 241, "getMore")
		otherWrites(w)
		require.ErrorContains(w, a.Failed(), "after "+w.Checkpoint().Position)
		require.EqualValues(w, 1, w.Checkpoint().Epoch)
		require.Regexp(w, `state +STOPPED`, operate(w, "status").Out)
	})
}

// An unlisted error of the server that lasts for less than half a minute stops nothing.
func TestG1AnUnknownErrorOfMongoDBThatPassesStopsNothing(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		for range 20 {
			w.FailMongo(1_000_000, 241, "getMore", "aggregate")
			w.Pass(2 * time.Second) // the request in flight is answered before
			w.InsertMany(5, 1)
			w.Pass(20 * time.Second)
			w.FailMongo(1, 241, "none")
			w.Published()
		}
		require.EqualValues(w, 1, w.Checkpoint().Epoch)
		a.End()
	})
}

// G6: a leader whose requests MongoDB answers with transient errors for longer than STALL_AFTER
// leaves the stream to another replica, and does not report silence.
func TestG1ALeaderWhoseSourceAnswersWithErrorsMakesRoom(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		b := w.StartProducer("b", nil)
		const hostUnreachable = 6 // from a mongos that does not reach a shard
		w.FailMongo(1_000_000, hostUnreachable, "getMore", "aggregate")
		w.Eventually("it steps down", func() bool { return w.Checkpoint().Epoch == 2 })
		require.Contains(w, a.Log.Text(), "MongoDB has answered with errors for too long")
		require.NotContains(w, a.Log.Text(), "MongoDB has not answered for too long")
		w.FailMongo(1, hostUnreachable, "none")
		w.InsertMany(5, 1)
		w.Published()
		b.End()
		a.End()
	})
}
