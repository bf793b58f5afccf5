package producer_test

import (
	"testing"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func TestAProducerCommandPollsMongoDBForThePrimary(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: "a mongos hides an election"}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		w.RequirePatience(func() world.Operated { return operate(w, "status").Operated })
		a.End()
	})
}
