package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// G5: a message overtook another. It waits for the other, and then both are applied in order.
func TestG5VersionGapHeals(t *testing.T) {
	for name, test := range map[string]struct {
		receiver string
		late     time.Duration
	}{
		"in the same batch":                     {"direct", 0},
		"before the wait is over":               {"direct", 20 * time.Second},
		"before the wait is over, with the SDK": {"sdk", 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			eachShape(t, func(w *projectorWorld, s shape) {
				p := w.start(func(c *projector.Config, o *projector.Options) {
					s.settings(nil)(c, o)
					c.SessionReceiver = test.receiver
				})
				w.publish(event("a", 1, "T"))
				w.completed(1)
				w.block("update", 1, time.Second)
				w.publish(event("a", 2, "T"))
				w.eventually("it is in hand", func() bool { return w.bus.Stats(subPath).Locked > 0 })
				w.publish(event("a", 4, "T"), event("a", 5, "T"))
				w.pass(test.late)
				w.publish(event("a", 3, "T"), event("a", 6, "T"))
				w.completed(6)
				_, err := p.end()
				require.NoError(w, err)
				require.Equal(w, 6, s.applied(w, "a"))
				require.Zero(w, w.bus.Stats(subPath).Redelivered, "a delivery count rose")
				require.Zero(w, w.bus.Stats(subPath).DeadLettered)
			})
		})
	}
}

// G5: what is missing does not come. The aggregate is parked, with a reason that tells how to go on, and no event behind
// the gap is applied.
func TestG5VersionGapParks(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		w.publish(event("a", 5, "T")) // the first version seen is accepted
		w.completed(1)
		began := time.Now()
		w.publish(event("a", 7, "T"), event("a", 8, "T"))
		w.publish(event("b", 1, "T"), event("b", 2, "T"))
		w.completed(3)
		require.Less(w, time.Since(began), time.Second, "another aggregate waited")
		w.deadLettered(2)
		require.GreaterOrEqual(w, time.Since(began), 30*time.Second)
		require.Less(w, time.Since(began), 35*time.Second)
		_, err := p.end()
		require.NoError(w, err)
		require.Equal(w, []string{"a/7 VersionGap", "a/8 AggregateParked"}, w.deadLetters())
		require.Equal(w, 1, s.applied(w, "a"))
		record := w.parked(s.guards, "a")
		require.Contains(w, record.Description, "the event has version 7, and the last one applied has 5")
		require.Contains(w, record.Description, "VERSION_GAP_WAIT=0")
		require.Zero(w, w.bus.Stats(subPath).Redelivered, "a delivery count rose")
	})
}

// G5: what was missing comes after its aggregate was parked for it, and is set aside with the rest. A replay puts it in its
// place; what never comes can be given up.
func TestG5ReplayClosesAVersionGap(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		w.publish(event("a", 1, "T"), event("a", 4, "T"))
		w.publish(event("b", 1, "T"), event("b", 3, "T"))
		w.deadLettered(2)
		still := w.command(s, "parked", "replay", "a")
		require.Equal(w, 1, still.code)
		require.Contains(w, still.out, "it stays parked, because of message "+messageID(event("a", 4, ""))+" at position "+event("a", 4, "").Position+": VersionGap")
		w.publish(event("a", 3, "T"))
		w.publish(event("a", 2, "T"))
		w.deadLettered(4)
		require.Equal(w, 0, w.command(s, "parked", "replay", "a").code)
		w.requireRight(s, "a", 4)

		require.Equal(w, 0, w.command(s, "parked", "drop", "b", "--yes").code)
		require.Equal(w, 2, s.applied(w, "b"), "the event behind the gap is no poison")
		require.Empty(w, w.deadLetters())
		_, err := p.end()
		require.NoError(w, err)
	})
}

// A source whose versions leave numbers out is applied as it comes.
func TestProjectorWithoutJudgingVersions(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(func(c *projector.Config, o *projector.Options) {
			s.settings(nil)(c, o)
			c.VersionGapWait = 0
		})
		w.publish(event("a", 10, "T"), event("a", 20, "T"))
		w.publish(event("a", 45, "T"))
		w.completed(3)
		_, err := p.end()
		require.NoError(w, err)
		require.Equal(w, 3, s.applied(w, "a"))
	})
}

// latest keeps the document of an aggregate's last change.
type latest struct{}

func (latest) Name() string       { return "latest" }
func (latest) Collection() string { return "latest" }

func (latest) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Replace("latest", e.Aggregate, e.Document())}, nil
}

// G6: a change that counts no version, and replaces the document that the guard lies in, leaves the version there: the one
// that is missing afterwards is told.
func TestG6AReplacementForgetsNoVersion(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		p := w.start(func(c *projector.Config, o *projector.Options) {
			registry, err := projection.NewRegistry(latest{})
			require.NoError(w, err)
			c.Projection, o.Projections = "latest", registry
		})
		w.publish(event("a", 1, "T"))
		w.completed(1)
		touched := event("a", 2, "$touched")
		touched.Operation = envelope.Update
		w.publish(touched)
		w.completed(2)
		raw, err := w.client.Database(readModel).Collection("latest").FindOne(w.Context(), bson.D{{Key: "_id", Value: "a"}}).Raw()
		require.NoError(w, err)
		text, err := bson.MarshalExtJSON(raw, false, false)
		require.NoError(w, err)
		require.Equal(w, `{"_id":"a","aggregateId":"a","version":2,"type":"$touched","occurredAt":"2026-01-01T00:00:02Z",`+
			`"_sluice":{"version":1,"position":"820000000000000000000002","epoch":1}}`, string(text))

		w.publish(event("a", 3, "T")) // and where is the second?
		w.deadLettered(1)
		_, err = p.end()
		require.NoError(w, err)
		require.Equal(w, []string{"a/3 VersionGap"}, w.deadLetters())
	})
}
