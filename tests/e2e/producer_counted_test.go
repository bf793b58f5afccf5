package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// documentDB has tokens that do not sort, and little else: positions are counted there.
var documentDB = mongo.Options{DocumentDB: true}

// plainly are the settings that such a deployment takes.
func plainly(c *producer.Config, _ *producer.Options) {
	c.FullDocument, c.BeforeChange = "default", "off"
}

func plainlyWith(pipeline string) func(*producer.Config, *producer.Options) {
	return func(c *producer.Config, o *producer.Options) {
		plainly(c, o)
		c.Pipeline = pipeline
	}
}

// startCounting runs the first leader of a stream and lets it publish one event: before that there is no token.
func (w *producerWorld) startCounting(instance string, change func(*producer.Config, *producer.Options)) *runningProducer {
	w.Helper()
	p := w.start(instance, change)
	w.eventually(instance+" reads", func() bool { return p.reads() })
	w.insert("first")
	w.leads(instance)
	return p
}

// reads says that the stream is open, by the server's count of cursors.
func (p *runningProducer) reads() bool { return p.w.mongo.OpenStreams() > 0 }

// judgeNumbers: whoever published an event, and however often, gave it the same position; no two events share one.
func (w *producerWorld) judgeNumbers() {
	w.Helper()
	positions, events := map[string]string{}, map[string]string{}
	for _, a := range w.took() {
		position := a.Properties[envelope.PropPosition].(string)
		require.Regexp(w, regexp.MustCompile(`^n\d{10}\.\d{18}$`), position)
		if was, sent := positions[a.MessageID]; sent {
			require.Equal(w, was, position, "the same event")
		}
		if other, given := events[position]; given {
			require.Equal(w, other, a.MessageID, "the same position")
		}
		positions[a.MessageID], events[position] = position, a.MessageID
	}
}

func TestG1G2ProducerOfADeploymentWithoutSortableTokens(t *testing.T) {
	inProducerWorld(t, documentDB, func(w *producerWorld) {
		a := w.startCounting("a", plainly)
		require.Contains(t, a.log.text(), "gives no resume token before the first change")
		w.insertMany(500, 7)
		for i := range 20 { // changes without updateDescription and pre-images
			w.inserted["u"]++
			if i == 0 {
				w.insertDocument(bson.D{{Key: "_id", Value: "u"}, {Key: "aggregateId", Value: "u"}, {Key: "version", Value: 1}})
				continue
			}
			_, err := w.events.UpdateByID(w.Context(), "u", bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}}}})
			require.NoError(t, err)
			w.eventually("it is published as it was", func() bool { return w.bus.Stats(topic).Accepted >= w.total() })
		}
		w.published()
		a.end()
		require.Equal(t, fmt.Sprintf("n0000000001.%018d", w.total()), w.checkpoint().Position)

		b := w.start("b", plainly)
		w.insertMany(100, 7)
		w.published()
		b.end()
		w.judgeNumbers()
		require.Zero(t, w.bus.Stats(topic).Duplicates)
	})
}

// G1, G2, G3 and G4: the leader vanishes in the middle of it, again and again; whoever goes on counts on as it did.
func TestG1G2G3G4CountedPositionsSurviveEveryInterruption(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inProducerWorld(t, documentDB, func(w *producerWorld) {
				random := rand.New(rand.NewPCG(seed, 5))
				settings := plainlyWith(`[{"$match": {"operationType": "insert"}}]`)
				producers := []*runningProducer{w.startCounting("a", settings), w.start("b", settings)}
				for range 20 {
					w.insertMany(1+random.IntN(120), 7)
					if random.IntN(3) == 0 {
						w.removeSome() // passed over by the filter
					}
					w.pause(time.Duration(random.IntN(1500)) * time.Millisecond)
					w.interrupt(random, producers[random.IntN(2)])
				}
				for _, p := range producers {
					p.comeBack()
				}
				w.published()
				w.judgeNumbers()
				w.eventually("the checkpoint covers everything", func() bool { return w.checkpoint().Published == int64(w.total()) })
				for _, p := range producers {
					p.end()
				}
				w.judgeEpochs()
			})
		})
	}
}

// removeSome deletes a document, whose change no filter here passes.
func (w *producerWorld) removeSome() {
	w.Helper()
	_, err := w.events.DeleteOne(w.Context(), bson.D{{Key: "aggregateId", Value: "a1"}})
	require.NoError(w, err)
}

func TestG1CountedPositionsGoOnAfterTheCollectionIsDropped(t *testing.T) {
	inProducerWorld(t, documentDB, func(w *producerWorld) {
		a := w.startCounting("a", plainly)
		w.insertMany(20, 2)
		w.published()
		require.NoError(t, w.events.Drop(w.Context()))
		w.insertMany(20, 2)
		w.published()
		a.end()
		b := w.start("b", plainly)
		w.insertMany(20, 2)
		w.published()
		b.end()
		w.judgeNumbers()
	})
}

// G3 and G6: a filter that has changed counts otherwise. It is refused until somebody accepts it, and then positions begin
// a series that is larger than all before.
func TestG3G6AChangedFilterIsRefusedUntilItIsAccepted(t *testing.T) {
	inProducerWorld(t, documentDB, func(w *producerWorld) {
		everything := plainly
		inserts := plainlyWith(`[{"$match": {"operationType": "insert"}}]`)
		onlyInserts := func(c *producer.Config) { inserts(c, nil) }
		a := w.startCounting("a", everything)
		w.insertMany(20, 2)
		w.removeSome()
		w.eventually("all of it is published", func() bool { return w.bus.Stats(topic).Accepted == w.total()+1 })
		a.end()
		before := w.checkpoint().Position

		b := w.start("b", inserts)
		err := b.failed()
		require.ErrorContains(t, err, "PIPELINE, the collection")
		require.ErrorContains(t, err, "producer token renumber")
		require.Equal(t, before, w.checkpoint().Position, "nothing is changed")

		doctor := w.operateWith(onlyInserts, "doctor")
		require.Regexp(t, `PROBLEM +reading settings`, doctor.out)
		done := w.operateWith(onlyInserts, "token", "renumber")
		require.Equal(t, 0, done.code, done.err)
		require.Greater(t, w.checkpoint().Position, before)
		require.Regexp(t, `ok +reading settings`, w.operateWith(onlyInserts, "doctor").out)

		c := w.start("c", inserts)
		w.insertMany(20, 2)
		w.removeSome()
		w.eventually("the new ones are published", func() bool { return w.bus.Stats(topic).Accepted == w.total()+1 })
		c.end()
		w.judgeNumbers()
		highest := map[string]string{}
		for _, accepted := range w.took() {
			require.False(t, accepted.Duplicate)
			position := accepted.Properties[envelope.PropPosition].(string)
			require.Greater(t, position, highest[accepted.SessionID])
			highest[accepted.SessionID] = position
		}
	})
}

// G6: a filter on documents that are looked up may count otherwise the second time.
func TestG6AnUnstableFilterIsRefusedWherePositionsAreCounted(t *testing.T) {
	inProducerWorld(t, documentDB, func(w *producerWorld) {
		a := w.start("a", func(c *producer.Config, _ *producer.Options) {
			c.BeforeChange = "off"
			c.Pipeline = `[{"$match": {"fullDocument.type": "Counted"}}]`
		})
		w.eventually("a reads", a.reads)
		w.insert("x")
		require.ErrorContains(t, a.failed(), "set FULL_DOCUMENT and FULL_DOCUMENT_BEFORE_CHANGE to default and off")
	})
}

// G3 and G6: where history is lost and the policy goes on, a new series begins, larger than all that was given.
func TestG3G6CountedPositionsGrowBehindLostHistory(t *testing.T) {
	few := documentDB
	few.OplogEntries = 100
	inProducerWorld(t, few, func(w *producerWorld) {
		a := w.startCounting("a", plainly)
		w.insertMany(10, 2)
		w.published()
		a.end()
		before := w.checkpoint().Position
		w.insertMany(500, 2)

		b := w.start("b", plainly)
		require.ErrorContains(t, b.failed(), "changes in between may be lost (ON_HISTORY_LOST=fail)")
		c := w.start("c", func(c *producer.Config, o *producer.Options) { plainly(c, o); c.OnHistoryLost = "latest" })
		w.eventually("c reads", c.reads)
		w.pause(time.Second)
		w.insert("first")
		w.eventually("the new event is published", func() bool { return w.bus.Stats(topic).Accepted == 12 })
		c.end()
		require.Greater(t, w.checkpoint().Position, before)
		require.Equal(t, "n0000000003.000000000000000001", w.checkpoint().Position, "the third epoch's series")
	})
}

// What an operator may do where positions are counted: look, go on somewhere else knowingly, and nothing that would apply
// changes twice by surprise.
func TestG6OperatorWherePositionsAreCounted(t *testing.T) {
	inProducerWorld(t, documentDB, func(w *producerWorld) {
		plain := func(c *producer.Config) { plainly(c, nil) }
		a := w.startCounting("a", plainly)
		w.insertMany(10, 2)
		w.published()
		middle := w.checkpoint().Token["_data"].(string)
		a.end()
		b := w.start("b", plainly)
		w.insertMany(10, 2)
		w.published()
		b.end()
		before := w.checkpoint()

		status := w.operateWith(plain, "status")
		require.Equal(t, 0, status.code, status.err)
		require.Contains(t, status.out, before.Position+" (counted: the resume tokens cannot be sorted)")
		require.Contains(t, status.out, "unknown: the deployment tells no time of its changes")
		doctor := w.operateWith(plain, "doctor")
		require.Equal(t, 0, doctor.code, doctor.out)
		require.Regexp(t, `ok +tokens +none before the first event`, doctor.out)
		require.Regexp(t, `ok +large events +the deployment does not split them`, doctor.out)
		require.Regexp(t, `ok +reading settings +positions are counted`, doctor.out)
		require.Regexp(t, `ok +history +the stream can go on`, doctor.out)
		unstable := w.operateWith(func(c *producer.Config) {
			c.BeforeChange, c.Pipeline = "off", `[{"$match": {"fullDocument.type": "Counted"}}]`
		}, "doctor")
		require.Regexp(t, `PROBLEM +reading settings +positions are counted, and a .match of PIPELINE looks at documents`, unstable.out)

		rewind := w.operateWith(plain, "token", "rewind", "--to", "2000-01-01T00:00:00Z")
		require.Equal(t, 1, rewind.code)
		require.Contains(t, rewind.err, "read models apply it twice")
		set := w.operateWith(plain, "token", "set", middle)
		require.Equal(t, 1, set.code)
		require.Contains(t, set.err, "--forward")
		require.Contains(t, w.operateWith(plain, "token", "renumber").out, "nothing to do")
		require.Equal(t, before, w.checkpoint(), "refusals change nothing")

		set = w.operateWith(plain, "token", "set", "--forward", middle)
		require.Equal(t, 0, set.code, set.err)
		require.Contains(t, set.out, "Positions begin a new series")
		require.Equal(t, "n0000000003.000000000000000000", w.checkpoint().Position)
		c := w.start("c", plainly)
		w.eventually("the changes since come again", func() bool { return w.bus.Stats(topic).Duplicates >= 10 })
		w.insertMany(10, 2)
		w.published()
		c.end()
		require.Greater(t, w.checkpoint().Position, "n0000000003.000000000000000000", "the operator's series goes on")
		require.Greater(t, w.checkpoint().Position, before.Position)
	})
}
