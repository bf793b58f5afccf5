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
		p := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(20, 2)
		w.Published()
		w.Eventually("the checkpoint has it", func() bool { return w.Checkpoint().Published == 20 })

		nowhere := operate(w, "token", "copy", "--container", "copies")
		require.Equal(t, 1, nowhere.Code)
		require.Contains(t, nowhere.Err, "there is no container copies; create it (az storage container create --name copies), or check --container")
		_, err := w.Blobs().CreateContainer(w.Context(), "copies", nil)
		require.NoError(t, err)

		first := operate(w, "token", "copy", "--container", "copies")
		require.Equal(t, 0, first.Code, first.Err)
		require.Contains(t, first.Out, "the checkpoint of epoch 1 is copied to copies/shop.events.json.")
		at := blobNamesIn(w, "copies")
		require.Len(t, at, 1)
		require.Contains(t, contentIn(w, "copies", at[0]), `"published":20`)

		time.Sleep(time.Hour) // virtual
		w.InsertMany(10, 2)
		w.Eventually("the leader goes on, in its epoch", func() bool { return w.Checkpoint().Published == 30 && w.Checkpoint().Epoch == 1 })
		require.Equal(t, 0, operate(w, "token", "copy", "--container", "copies").Code)
		both := blobNamesIn(w, "copies")
		require.Len(t, both, 2)
		require.Less(t, both[0], both[1], "the newest is the last")
		require.Contains(t, contentIn(w, "copies", both[0]), `"published":20`, "a copy stays as it was")
		require.Contains(t, contentIn(w, "copies", both[1]), `"published":30`)
		p.End()
	})
}
