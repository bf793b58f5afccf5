package producer_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// claiming stores the bodies of large events in blobs.
func claiming(c *producer.Config, o *producer.Options) {
	world.AllOperations(c, o)
	c.MessageFormat, c.OnOversize, c.ClaimContainer = "bson", "claimcheck", "claim-checks"
}

// insertLarge commits a document of 9 MB in a collection that keeps pre-images: the event of its
// next update is larger than 16 MB.
func insertLarge(w *world.World) {
	w.Helper()
	w.Inserted["big"]++
	w.InsertDocument(bson.D{
		{Key: "_id", Value: "big"},
		{Key: "aggregateId", Value: "big"},
		{Key: "version", Value: 1},
		{Key: "pad", Value: strings.Repeat("x", 9<<20)},
	})
}

func updateLarge(w *world.World) {
	w.Helper()
	w.Inserted["big"]++
	_, err := w.Events.UpdateByID(w.Context(), "big", bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}}}})
	require.NoError(w, err)
}

// G1, G3 and G6: an event larger than a document comes in fragments, in separate answers, and is
// published whole and once, whatever happens between them.
func TestG1G3G6AnEventInFragmentsIsPublishedWhole(t *testing.T) {
	const vanishes = "the leader vanishes"
	for name, between := range map[string]func(w *world.World){
		"nothing": func(*world.World) {},
		"the driver resumes behind the first fragment": func(w *world.World) { w.FailMongo(1, 43, "getMore") },
		"the server does not go on from there":         func(w *world.World) { w.FailMongo(1, 280, "getMore") },
		vanishes:                                       func(w *world.World) { w.DelayMongo(1, 30*time.Second, "getMore") },
	} {
		subtest(t, name, world.Options{Since: fragments}, func(w *world.World) {
			w.KeepImages()
			a := startLeader(w, "a", claiming)
			insertLarge(w)
			w.Published()
			checkpointed(w, 1)
			before := w.Checkpoint().Position
			w.Pass(333 * time.Millisecond) // between two answers: the reader waits for the next

			between(w)
			updateLarge(w)
			if name == vanishes {
				w.Pass(3 * time.Second)
				require.Len(w, w.Took(), 1, "half an event is not published")
				require.Equal(w, before, w.Checkpoint().Position, "nor passed")
				a.Vanish()
			}
			b := w.StartProducer("b", claiming)
			w.InsertMany(20, 3)
			w.Published()
			for _, accepted := range w.Took() {
				if accepted.SessionID == "big" && accepted.Properties["operation"] == "update" {
					require.Greater(w, accepted.Properties["claim_size"], int64(18<<20), "both documents are in it")
				}
			}
			checkpointed(w, w.Total())
			a.End()
			b.End()
		})
	}
}

// A deployment that cannot split is read anyway, until an event is too large for it: that is
// reported.
func TestG6ADeploymentThatCannotSplitReportsTheEvent(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images, Mongo: mongo.Options{NoSplit: true}}, func(w *world.World) {
		w.KeepImages()
		a := startLeader(w, "a", claiming)
		require.Contains(t, a.Log.Text(), "does not split events larger than 16 MB")
		insertLarge(w)
		w.Published()
		updateLarge(w)
		require.ErrorContains(t, a.Failed(), "a change is larger than 16 MB, and this deployment cannot split it")
		require.EqualValues(t, 1, w.Checkpoint().Published)
	})
}

// G6: a change that cannot be read is reported at every start, however the stream reached it, and
// the error names the way past it.
func TestG6AChangeThatCannotBeSplitIsReportedAtEveryStart(t *testing.T) {
	for name, stopped := range map[string]bool{"it comes while a leader reads": false, "it comes while no producer runs": true} {
		subtest(t, name, world.Options{Since: images, Mongo: mongo.Options{NoSplit: true}}, func(w *world.World) {
			w.KeepImages()
			a := startLeader(w, "a", claiming)
			insertLarge(w)
			w.Published()
			if stopped {
				a.End()
				w.InsertMany(3, 1)
				updateLarge(w)
			} else {
				w.InsertMany(3, 1)
				updateLarge(w)
				require.ErrorContains(w, a.Failed(), "a change is larger than 16 MB, and this deployment cannot split it")
			}
			var failed error
			for range 3 {
				failed = w.StartProducer("a", claiming).Failed()
				require.ErrorContains(w, failed, "a change is larger than 16 MB, and this deployment cannot split it")
				require.Len(w, w.Took(), 4, "what lies before it is published")
				operateWith(w, claiming, "status").reports(1, `state +STOPPED`)
				operateWith(w, claiming, "doctor").reports(1, `PROBLEM +history +the change after the checkpoint is larger than 16 MB`)
			}
			require.ErrorContains(w, failed, "after "+w.Checkpoint().Position)
			require.ErrorContains(w, failed, "producer token set --forward")
			token := regexp.MustCompile(`\{ _data: "\w+" \}`).FindString(failed.Error())
			operate(w, "token", "set", "--forward", strings.Replace(token, "_data", `"_data"`, 1)).succeeds()
			b := startLeader(w, "b", claiming)
			w.InsertMany(5, 1)
			w.Eventually("the stream goes on behind it", func() bool { return len(w.Took()) == 4+5 })
			b.End()
		})
	}
}

// A change that OPERATIONS leaves out is not requested: on a server that cannot split changes, a
// large one stops nothing.
func TestAChangeThatIsNotWantedStopsNothing(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: images, Mongo: mongo.Options{NoSplit: true}}, func(w *world.World) {
		w.KeepImages()
		inserts := func(c *producer.Config, _ *producer.Options) {
			c.OnOversize, c.Operations, c.BeforeChange = "claimcheck", []envelope.Operation{envelope.Insert}, "required"
		}
		a := startLeader(w, "a", inserts)
		insertLarge(w)
		w.Published()
		for restarted := range 2 {
			updateLarge(w)
			w.Inserted["big"]--
			w.InsertMany(5, 1)
			w.Published()
			w.Mongo.ExpireImages()
			if restarted == 0 {
				a.End()
				a = startLeader(w, "a", inserts)
			}
		}
		a.End()
	})
}
