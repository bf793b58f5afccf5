package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// claiming leaves the bodies of large events in blobs.
func claiming(c *producer.Config, _ *producer.Options) {
	c.MessageFormat, c.OnOversize, c.ClaimContainer = "bson", "claimcheck", "claim-checks"
}

// insertLarge commits a document of 9 MB in a collection that keeps pre-images: the event of its next update is larger
// than 16 MB.
func (w *producerWorld) insertLarge() {
	w.Helper()
	w.inserted["big"]++
	w.insertDocument(bson.D{
		{Key: "_id", Value: "big"},
		{Key: "aggregateId", Value: "big"},
		{Key: "version", Value: 1},
		{Key: "pad", Value: strings.Repeat("x", 9<<20)},
	})
}

func (w *producerWorld) updateLarge() {
	w.Helper()
	w.inserted["big"]++
	_, err := w.events.UpdateByID(w.Context(), "big", bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}}}})
	require.NoError(w, err)
}

// failGetMore makes MongoDB do something else than answer the next getMore that it receives.
func (w *producerWorld) failGetMore(data ...bson.E) {
	w.Helper()
	require.NoError(w, w.events.Database().Client().Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: append(bson.D{{Key: "failCommands", Value: bson.A{"getMore"}}}, data...)},
	}).Err())
}

// G1, G3 and G6: an event larger than a document comes in fragments, in answers of their own, and is published whole and
// once, whatever happens between them.
func TestG1G3G6AnEventInFragmentsIsPublishedWhole(t *testing.T) {
	for name, between := range map[string]func(w *producerWorld) func(a *runningProducer){
		"nothing": nil,
		"the driver resumes behind the first fragment": func(w *producerWorld) func(*runningProducer) {
			w.failGetMore(bson.E{Key: "errorCode", Value: 43})
			return nil
		},
		"the server does not go on from there": func(w *producerWorld) func(*runningProducer) {
			w.failGetMore(bson.E{Key: "errorCode", Value: 280})
			return nil
		},
		"the leader vanishes": func(w *producerWorld) func(*runningProducer) {
			w.failGetMore(bson.E{Key: "blockConnection", Value: true}, bson.E{Key: "blockTimeMS", Value: 30_000})
			return func(a *runningProducer) { a.vanish() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
				require.NoError(t, w.events.Database().CreateCollection(w.Context(), "events",
					options.CreateCollection().SetChangeStreamPreAndPostImages(bson.D{{Key: "enabled", Value: true}})))
				a := w.start("a", claiming)
				w.leads("a")
				w.insertLarge()
				w.published()
				w.eventually("the checkpoint has it", func() bool { return w.checkpoint().Published == 1 })
				before := w.checkpoint().Position
				w.pause(333 * time.Millisecond) // between two answers: the reader waits for the next

				var then func(*runningProducer)
				if between != nil {
					then = between(w)
				}
				w.updateLarge()
				if then != nil {
					w.pause(3 * time.Second)
					require.Len(t, w.took(), 1, "half an event is not published")
					require.Equal(t, before, w.checkpoint().Position, "nor passed")
					then(a)
				}
				b := w.start("b", claiming)
				w.insertMany(20, 3)
				w.published()
				for _, accepted := range w.took() {
					if accepted.SessionID == "big" && accepted.Properties["operation"] == "update" {
						require.Greater(t, accepted.Properties["claim_size"], int64(18<<20), "both documents are in it")
					}
				}
				w.eventually("the checkpoint has all", func() bool { return w.checkpoint().Published == int64(w.total()) })
				a.end()
				b.end()
			})
		})
	}
}

// A deployment that cannot split is read all the same, until an event is too large for it: that is told.
func TestG6ADeploymentThatCannotSplitSaysWhichEventItCannotGive(t *testing.T) {
	inProducerWorld(t, mongo.Options{NoSplit: true}, func(w *producerWorld) {
		require.NoError(t, w.events.Database().CreateCollection(w.Context(), "events",
			options.CreateCollection().SetChangeStreamPreAndPostImages(bson.D{{Key: "enabled", Value: true}})))
		a := w.start("a", claiming)
		w.leads("a")
		require.Contains(t, a.log.text(), "does not split events larger than 16 MB")
		w.insertLarge()
		w.published()
		w.updateLarge()
		require.ErrorContains(t, a.failed(), "a change is larger than 16 MB, and this deployment cannot split it")
		require.EqualValues(t, 1, w.checkpoint().Published)
	})
}
