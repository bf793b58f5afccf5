package projector_test

import (
	"testing"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func TestAProjectorCommandAsksMongoDBAndDoesNotWaitToBeTold(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.RequirePatience(func() world.Operated { return w.OperateProjector(nil, "status") })
	})
}
