package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G2 and G3: MongoDB writes its resume tokens in another version from one leader to the next. A
// change that both publish has one position and one id, and is applied once, although the broker
// has forgotten it: the last event of each aggregate, and the middle of a transaction.
func TestG2G3AChangeIsOneAcrossAnUpgradeOfMongoDB(t *testing.T) {
	for from, to := range map[int]int{1: 2, 2: 1} {
		t.Run(fmt.Sprintf("version %d to %d", from, to), func(t *testing.T) {
			world.InVirtualTime(t, world.Options{
				Mongo: mongo.Options{TokenVersion: from}, DuplicateWindow: 20 * time.Second,
			}, func(w *world.World) {
				p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.VersionGapWait = 0 })
				a := w.StartProducer("a", nil)
				w.Leads("a")
				w.InsertMany(20, 4)
				w.Published()
				w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == 20 })
				form := envelope.TokenForm(w.Checkpoint().Position)
				a.BlobPlug.Pull()
				w.InsertMany(20, 4)
				inTransaction(w, 3)
				w.Eventually("more is published, and in no checkpoint", func() bool { return w.Bus.Stats(world.Topic).Accepted >= 43 })
				a.Vanish()
				w.Completed(43)
				w.Pass(30 * time.Second) // the broker forgets
				w.Mongo.SetTokenVersion(to)

				b := w.StartProducer("b", nil)
				w.InsertMany(20, 4)
				w.Eventually("b has published all", func() bool { return w.Checkpoint().Published == 63 })
				w.Completed(len(w.Took()))
				b.End()
				a.End()
				counted := p.MustEnd()
				require.EqualValues(t, 15+3, w.TimelineOf("a0").Events)
				require.Equal(t, 63, counted.Applied)
				require.GreaterOrEqual(t, counted.Duplicates, 23)

				positions := map[string]string{}
				again := 0
				for _, m := range w.Took() {
					position := m.Properties[envelope.PropPosition].(string)
					if was, sent := positions[m.MessageID]; sent {
						again++
						require.Equal(t, was, position)
					}
					positions[m.MessageID] = position
				}
				require.Len(t, positions, 63)
				require.GreaterOrEqual(t, again, 23)
				require.Equal(t, form, envelope.TokenForm(w.Checkpoint().Position), "the stream keeps its form")
				require.NotEqual(t, form, envelope.TokenForm(w.Checkpoint().Token["_data"].(string)), "the token is as the server gave it")
				require.True(t, w.Checkpoint().Translated, "a version that takes the token for the position must not lead")
			})
		})
	}
}

// inTransaction commits n events of a0 at one cluster time.
func inTransaction(w *world.World, n int) {
	w.Helper()
	session, err := w.Client.StartSession()
	require.NoError(w, err)
	defer session.EndSession(w.Context())
	before := w.Inserted["a0"]
	_, err = session.WithTransaction(w.Context(), func(ctx context.Context) (any, error) {
		for version := before + 1; version <= before+n; version++ {
			if _, err := w.Events.InsertOne(ctx, anEvent("a0", version)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	require.NoError(w, err)
	w.Inserted["a0"] += n
}

// G3: a document with an _id of 20 KB has a position that fits into its message and its guard; it
// is applied once, also when it is published again.
func TestG3ADocumentWithAVeryLongIDIsAppliedOnce(t *testing.T) {
	world.InVirtualTime(t, world.Options{DuplicateWindow: 20 * time.Second}, func(w *world.World) {
		p := w.StartProjector(nil)
		a := w.StartProducer("a", nil)
		w.Leads("a")
		a.BlobPlug.Pull()
		for n := range 3 {
			appendEvent(w, "A", bson.E{Key: "_id", Value: strings.Repeat("x", 20_000) + fmt.Sprint(n)})
		}
		w.Published()
		w.Completed(3)
		a.Vanish()
		w.Pass(30 * time.Second)
		b := w.StartProducer("b", nil)
		w.Eventually("b has published them again", func() bool { return w.Checkpoint().Published == 3 })
		w.Completed(6)
		b.End()
		a.End()
		counted := p.MustEnd()
		require.Equal(t, 3, counted.Applied)
		require.Equal(t, 3, counted.Duplicates)
		require.LessOrEqual(t, len(w.TimelineOf("A").Guard.Position), 8<<10)
	})
}
