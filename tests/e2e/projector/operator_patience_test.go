package projector_test

import (
	"testing"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func TestAProjectorCommandPollsMongoDBForThePrimary(t *testing.T) {
	o := settings(0)
	o.ReplicaSet = "a mongos hides an election: its answer comes late, and a late one is lost here"
	world.InVirtualTime(t, o, func(w *world.World) {
		w.RequirePatience(func() world.Operated { return w.OperateProjector(nil, "status") })
	})
}
