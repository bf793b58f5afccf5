package producer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// livingDocuments are a few documents that are created, changed and deleted, and the commits of
// each aggregate, in order.
type livingDocuments struct {
	*world.World
	random    *rand.Rand
	there     map[string]int // version by _id
	versions  map[string]int // by aggregate
	committed map[string][]string
}

// commit makes one random change of a random document. The content of its message is known from
// then on, whichever leader publishes it.
func (d *livingDocuments) commit() {
	d.Helper()
	id := fmt.Sprintf("d%d", d.random.IntN(12))
	aggregate := "of-" + id[len(id)-1:] // d0 and d10 share one
	key, now := bson.D{{Key: "_id", Value: id}}, d.versions[aggregate]+1
	document := bson.D{{Key: "_id", Value: id}, {Key: "aggregateId", Value: aggregate}, {Key: "version", Value: now}}
	was, exists := d.there[id]
	operation := []string{"update", "update", "replace", "delete"}[d.random.IntN(4)]
	if !exists {
		operation = "insert"
	}
	var err error
	switch operation {
	case "insert":
		_, err = d.Events.InsertOne(d.Context(), document)
	case "update":
		_, err = d.Events.UpdateOne(d.Context(), key, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: now}}}})
	case "replace":
		_, err = d.Events.ReplaceOne(d.Context(), key, document)
	case "delete":
		_, err = d.Events.DeleteOne(d.Context(), key)
		now = was // a delete carries the deleted document
	}
	require.NoError(d, err)
	if operation == "delete" {
		delete(d.there, id)
	} else {
		d.there[id], d.versions[aggregate] = now, now
	}
	d.Inserted[aggregate]++
	d.committed[aggregate] = append(d.committed[aggregate], fmt.Sprintf("%s %d", operation, now))
}

// judge compares what the broker accepted with the commits: each change is in its aggregate's
// session, in order, with its own version, one id and one position, no matter how many times it was
// published.
func (d *livingDocuments) judge() {
	d.Helper()
	bodies, published := map[string]string{}, map[string][]string{}
	for _, m := range d.Took() {
		what := fmt.Sprintf("%s %v", m.Properties["operation"], m.Properties[envelope.PropVersion])
		all := fmt.Sprintf("%s in %s at %v", what, m.SessionID, m.Properties[envelope.PropPosition])
		if before, again := bodies[m.MessageID]; again {
			require.Equal(d, before, all, "published again")
			continue
		}
		bodies[m.MessageID] = all
		published[m.SessionID] = append(published[m.SessionID], what)
	}
	require.Equal(d, d.committed, published)
}

// G1, G2 and G3: documents change and are deleted while leaders come and go and MongoDB is upgraded
// and downgraded; what they publish again is looked up after it has changed further.
func TestG1G2G3DocumentsKeepTheirAggregateThroughEveryInterruption(t *testing.T) {
	for seed := range uint64(8) {
		version := 1 + int(seed%2)
		subtest(t, fmt.Sprint("seed ", seed), world.Options{Since: images, Mongo: mongo.Options{TokenVersion: version}}, func(w *world.World) {
			random := rand.New(rand.NewPCG(seed, 9))
			d := &livingDocuments{World: w, random: random, there: map[string]int{}, versions: map[string]int{}, committed: map[string][]string{}}
			w.KeepImages()
			producers := []*world.Producer{w.StartProducer("a", world.AllOperations), w.StartProducer("b", world.AllOperations)}
			w.Eventually("a producer leads", func() bool { return w.Checkpoint().Token != nil })
			interrupted(w, random, producers, func(round int) {
				if round%7 == 4 {
					version = 3 - version
					w.Mongo.SetTokenVersion(version)
				}
				for range 1 + random.IntN(40) {
					d.commit()
				}
			})
			d.judge()
		})
	}
}
