package producer_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// copied runs a stream for a while, has its checkpoint copied, and continues a little. At the end
// there is no leader.
func copied(w *world.World) (copy string) {
	w.Helper()
	a := w.StartProducer("a", nil)
	w.Leads("a")
	w.InsertMany(20, 2)
	w.Eventually("it is in the checkpoint", func() bool { return w.Checkpoint().Published == 20 })
	_, err := w.Blobs().CreateContainer(w.Context(), "copies", nil)
	require.NoError(w, err)
	require.Equal(w, 0, operate(w, "token", "copy", "--container", "copies").Code)
	w.Pass(time.Minute)
	w.InsertMany(10, 2)
	w.Published()
	a.End()
	return blobNamesIn(w, "copies")[0]
}

// G4: a restoration that would do harm is refused and changes nothing.
func TestG4ARestorationThatWouldDoHarmIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		before func(w *world.World, copy string)
		args   []string
		says   string
	}{
		"without a word on what waited": {nil, []string{"--container", "copies"}, "--applied"},
		"a time after the copy": {
			func(w *world.World, _ string) { deleteBlob(w, checkpointBlob) },
			[]string{"--container", "copies", "--to", "2000-01-01T00:00:45Z"},
			"is after the copy",
		},
		"a time to come": {
			func(w *world.World, _ string) { deleteBlob(w, checkpointBlob) },
			[]string{"--to", "2001-01-01T00:00:00Z"},
			"is no time in the past",
		},
		"no container": {
			func(w *world.World, _ string) { deleteBlob(w, checkpointBlob) },
			[]string{"--container", "elsewhere", "--applied"},
			"there is no container elsewhere; check --container",
		},
		"a copy that is not there": {
			func(w *world.World, _ string) { deleteBlob(w, checkpointBlob) },
			[]string{"shop.events.json.1999-12-31T00-00-00Z", "--container", "copies", "--applied"},
			"there is no copy of stream",
		},
		"another stream's copy": {func(w *world.World, copy string) {
			deleteBlob(w, checkpointBlob)
			_, err := w.Blobs().UploadBuffer(w.Context(), "copies", copy,
				[]byte(strings.Replace(contentIn(w, "copies", copy), `"shop.events"`, `"shop.orders"`, 1)), nil)
			require.NoError(w, err)
		}, []string{"--container", "copies", "--applied"}, `it belongs to stream "shop.orders"`},
		"a checkpoint that is published from": {nil, []string{"--container", "copies", "--applied"}, "30 changes have been published"},
		"a leader": {func(w *world.World, _ string) {
			deleteBlob(w, checkpointBlob)
			deleteBlob(w, checkpointBlob+".began")
			w.StartProducer("b", nil)
			w.Leads("b")
		}, []string{"--container", "copies", "--applied"}, "b leads stream"},
	} {
		t.Run(name, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				copy := copied(w)
				if c.before != nil {
					c.before(w, copy)
				}
				was := w.Checkpoint()
				refused := operate(w, append([]string{"token", "restore"}, c.args...)...)
				require.Equal(t, 1, refused.Code, refused.Out)
				require.Contains(t, refused.Err, c.says)
				is := w.Checkpoint()
				require.Equal(t, was.Epoch, is.Epoch)
				require.Equal(t, was.Leader, is.Leader)
				require.Equal(t, was.Published, is.Published)
				if was.Epoch > 0 && name != "a leader" {
					require.True(t, leaseIsFree(w))
				}
			})
		})
	}
}

// A stream that was begun again and has published nothing can be replaced by its copy, and its
// record is kept. The newest copy is used, a second restoration of it has a higher epoch, and the
// epoch is far above the copy's whatever the clock shows.
func TestG4ARestoredEpochIsAboveAllThatWere(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		copy := copied(w)
		deleteBlob(w, checkpointBlob)
		deleteBlob(w, checkpointBlob+".began")
		b := w.StartProducer("b", nil) // begins now
		w.Leads("b")
		b.End()
		require.Zero(t, w.Checkpoint().Published)
		var done struct {
			Epoch      int64  `json:"epoch"`
			Generation int64  `json:"generation"`
			Copy       string `json:"copy"`
			Old        string `json:"old_record"` // of the last record that was replaced
		}
		restore := func() {
			restored := operate(w, "token", "restore", "--container", "copies", "--applied", "--json")
			require.Equal(t, 0, restored.Code, restored.Err)
			require.NoError(t, json.Unmarshal([]byte(restored.Out), &done))
		}
		restore()
		require.Equal(t, time.Now().Unix(), done.Epoch)
		require.Equal(t, done.Epoch, done.Generation)
		require.Equal(t, "copies/"+copy, done.Copy)
		require.Equal(t, checkpointBlob+".epoch-1", done.Old)
		require.Equal(t, done.Epoch, w.Checkpoint().Epoch)
		require.EqualValues(t, 20, w.Checkpoint().Published)
		require.True(t, leaseIsFree(w))

		first := done.Epoch
		w.Pass(time.Hour)
		deleteBlob(w, checkpointBlob)
		restore()
		require.Equal(t, first+3600, done.Epoch, "the same copy a second time")

		// A copy from a clock that is fast.
		_, err := w.Blobs().UploadBuffer(w.Context(), "copies", copy,
			[]byte(strings.Replace(contentIn(w, "copies", copy), `"epoch":1,`, `"epoch":5000000000,`, 1)), nil)
		require.NoError(t, err)
		deleteBlob(w, checkpointBlob)
		restore()
		require.EqualValues(t, 5_001_000_000, done.Epoch)

		c := w.StartProducer("c", func(c *producer.Config, _ *producer.Options) { c.StartFrom = "checkpoint" })
		w.Eventually("what came behind the copy is published again", func() bool { return w.Checkpoint().Published == 30 })
		require.EqualValues(t, 5_001_000_001, w.Checkpoint().Epoch)
		c.End()
	})
}
