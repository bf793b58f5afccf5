package producer_test

import (
	"encoding/json"
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
	a := startLeader(w, "a", nil)
	w.InsertMany(20, 2)
	checkpointed(w, 20)
	_, err := w.Blobs().CreateContainer(w.Context(), "copies", nil)
	require.NoError(w, err)
	operate(w, "token", "copy", "--container", "copies").succeeds()
	w.Pass(time.Minute)
	w.InsertMany(10, 2)
	w.Published()
	a.End()
	return blobNames(w, "copies")[0]
}

// G4: a restoration that would do harm is refused and changes nothing.
func TestG4ARestorationThatWouldDoHarmIsRefused(t *testing.T) {
	lost := func(w *world.World, _ string) { deleteBlobs(w, checkpointBlob) }
	for name, c := range map[string]struct {
		before func(w *world.World, copy string)
		args   []string
		want   string
	}{
		"without a word on what waited": {nil, []string{"--container", "copies"}, "--applied"},
		"a time after the copy":         {lost, []string{"--container", "copies", "--to", "2000-01-01T00:00:45Z"}, "is after the copy"},
		"a time to come":                {lost, []string{"--to", "2001-01-01T00:00:00Z"}, "is no time in the past"},
		"no container": {
			lost,
			[]string{"--container", "elsewhere", "--applied"},
			"there is no container elsewhere; check --container",
		},
		"a copy that is not there": {
			lost,
			[]string{"shop.events.json.1999-12-31T00-00-00Z", "--container", "copies", "--applied"},
			"there is no copy of stream",
		},
		"another stream's copy": {func(w *world.World, copy string) {
			lost(w, copy)
			amend(w, "copies", copy, `"shop.events"`, `"shop.orders"`)
		}, []string{"--container", "copies", "--applied"}, `it belongs to stream "shop.orders"`},
		"a checkpoint that is published from": {nil, []string{"--container", "copies", "--applied"}, "30 changes have been published"},
		"a leader": {func(w *world.World, _ string) {
			deleteBlobs(w, checkpointBlob, checkpointBlob+".began")
			startLeader(w, "b", nil)
		}, []string{"--container", "copies", "--applied"}, "b leads stream"},
	} {
		subtest(t, name, world.Options{}, func(w *world.World) {
			copy := copied(w)
			if c.before != nil {
				c.before(w, copy)
			}
			was := w.Checkpoint()
			operate(w, append([]string{"token", "restore"}, c.args...)...).fails(c.want)
			is := w.Checkpoint()
			require.Equal(w, was.Epoch, is.Epoch)
			require.Equal(w, was.Leader, is.Leader)
			require.Equal(w, was.Published, is.Published)
			if was.Epoch > 0 && name != "a leader" {
				require.True(w, leaseIsFree(w))
			}
		})
	}
}

// A stream that was begun again and has published nothing can be replaced by its copy, and its
// record is kept. The newest copy is used, a second restoration of it has a higher epoch, and the
// epoch is far above the copy's whatever the clock shows.
func TestG4ARestoredEpochIsAboveAllThatWere(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		copy := copied(w)
		deleteBlobs(w, checkpointBlob, checkpointBlob+".began")
		startLeader(w, "b", nil).End() // begins now
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
		deleteBlobs(w, checkpointBlob)
		restore()
		require.Equal(t, first+3600, done.Epoch, "the same copy a second time")

		// A copy from a clock that is fast.
		amend(w, "copies", copy, `"epoch":1,`, `"epoch":5000000000,`)
		deleteBlobs(w, checkpointBlob)
		restore()
		require.EqualValues(t, 5_001_000_000, done.Epoch)

		c := w.StartProducer("c", func(c *producer.Config, _ *producer.Options) { c.StartFrom = "checkpoint" })
		checkpointed(w, 30)
		require.EqualValues(t, 5_001_000_001, w.Checkpoint().Epoch)
		c.End()
	})
}
