package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// Copies are made while a leader is active, which does not notice, and each contains the record of
// its moment.
func TestTheCheckpointIsCopiedWhileItsLeaderGoesOn(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := startAndPublish(w, "a", nil, 20, 2)
		checkpointed(w, 20)

		operate(w, "token", "copy", "--container", "copies").
			fails("there is no container copies; create it (az storage container create --name copies), or check --container")
		_, err := w.Blobs().CreateContainer(w.Context(), "copies", nil)
		require.NoError(t, err)

		operate(w, "token", "copy", "--container", "copies").succeeds("the checkpoint of epoch 1 is copied to copies/shop.events.json.")
		at := blobNames(w, "copies")
		require.Len(t, at, 1)
		require.Contains(t, blobContent(w, "copies", at[0]), `"published":20`)

		time.Sleep(time.Hour) // virtual
		w.InsertMany(10, 2)
		w.Eventually("the leader goes on, in its epoch", func() bool { return w.Checkpoint().Published == 30 && w.Checkpoint().Epoch == 1 })
		operate(w, "token", "copy", "--container", "copies").succeeds()
		both := blobNames(w, "copies")
		require.Len(t, both, 2)
		require.Less(t, both[0], both[1], "the newest is the last")
		require.Contains(t, blobContent(w, "copies", both[0]), `"published":20`, "a copy stays as it was")
		require.Contains(t, blobContent(w, "copies", both[1]), `"published":30`)
		p.End()
	})
}
