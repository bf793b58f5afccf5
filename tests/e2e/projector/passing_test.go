package projector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G5: a transient error with which the database answers only the writes of one aggregate does not
// keep the others of its batch from being written.
func TestG5AnErrorThatPassesOfOneAggregateHoldsUpNoNeighbour(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		w.DelayMongo(1, time.Second, "update") // the rest comes as one batch
		publishTogether(w, event("first", 1, "T"))
		w.Eventually("the first is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
		end := w.Mongo.RefuseWrites(func(x mongo.Writing) (code int32) {
			if strings.HasPrefix(fmt.Sprint(x.ID), "bad") {
				return 13
			}
			return 0
		})
		began := time.Now()
		publishTogether(w, event("bad", 1, "T"), event("healthy", 1, "T"), event("healthy", 2, "T"), event("other", 1, "T"))
		w.Eventually("the others are written", func() bool { return s.applied(w, "healthy") == 2 && s.applied(w, "other") == 1 })
		require.Less(w, time.Since(began), 10*time.Second)
		require.Zero(w, s.applied(w, "bad"))
		end()
		w.Completed(5)
		require.Equal(w, 1, s.applied(w, "bad"))
		require.Empty(w, deadLetters(w))
	})
}

// G6: an aggregate whose transactions lose to others for longer than UNDECIDED_AFTER is not to
// blame. It is not parked, and its events are applied when the others leave it a turn.
func TestG6TransactionsThatLoseToOthersParkNothing(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		s := shapes()[1] // whose effects are written in transactions
		p := w.StartProjector(s.settings)
		end := w.Mongo.RefuseWrites(func(x mongo.Writing) (code int32) {
			if x.Before >= 0 && strings.HasPrefix(fmt.Sprint(x.ID), "loses") {
				return mongodb.WriteConflict
			}
			return 0
		})
		publish(w, event("loses", 1, "T"))
		for n := 1; n <= 16; n++ {
			publish(w, event("healthy", n, "T"))
			w.Completed(n)
			w.Pass(time.Minute)
		}
		require.Empty(w, deadLetters(w))
		end()
		w.Completed(17)
		require.Equal(w, 1, s.applied(w, "loses"))
		p.MustEnd()
	})
}
