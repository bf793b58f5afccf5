package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// vault is a store in memory whose creations of a checkpoint fail while broken is set.
type vault struct {
	storetest.Memory
	broken bool
}

func (v *vault) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	if v.broken && name == checkpointBlob {
		return "", errors.New("the vault is closed")
	}
	return v.Memory.Create(ctx, name, data)
}

// record returns the record in the vault; the zero record if it does not exist.
func (v *vault) record(w *world.World) world.CheckpointRecord {
	w.Helper()
	object, err := v.Get(w.Context(), checkpointBlob)
	if errors.Is(err, store.ErrNotFound) {
		return world.CheckpointRecord{}
	}
	require.NoError(w, err)
	var leased struct{ Record world.CheckpointRecord }
	require.NoError(w, json.Unmarshal(object.Data, &leased))
	return leased.Record
}

// withVault returns the store named vault of a world with two stores.
func withVault(w *world.World) *vault {
	stores := map[string]*vault{"vault": {}, "attic": {}}
	w.Store = func(name string) (store.Store, error) { return stores[name], nil }
	return stores["vault"]
}

func startIn(w *world.World, instance, place string) *world.Producer {
	w.Helper()
	return w.StartProducer(instance, func(c *producer.Config, _ *producer.Options) {
		c.CheckpointStore, c.StartFrom = place, "checkpoint"
	})
}

// published requires that everything inserted was accepted once: no gap, and no repeat.
func published(w *world.World) {
	w.Helper()
	w.Published()
	require.Len(w, w.Took(), w.Total())
	w.Judge()
}

// A stream goes from store to store and back with a backlog. The next leader continues exactly
// behind the last one, with a higher epoch, and nothing leads with what stayed behind.
func TestG1G4AMoveLosesAndRepeatsNothing(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		v := withVault(w)
		a := startAndPublish(w, "a", nil, 20, 2)
		operate(w, "token", "move", "--to", "vault").fails("a leads stream")
		a.End()
		w.InsertMany(5, 2) // the backlog
		before := w.Checkpoint().Epoch

		operate(w, "token", "move", "--to", "vault").succeeds("CHECKPOINT_STORE=vault")
		require.Greater(w, v.record(w).Epoch, before+1)
		require.ErrorContains(w, w.StartProducer("late", nil).Failed(), "set CHECKPOINT_STORE=vault")
		operate(w, "token", "move", "--to", "vault").succeeds("nothing to do")
		require.Contains(w, operate(w, "doctor").Out, "set CHECKPOINT_STORE=vault")

		b := startIn(w, "b", "vault")
		published(w)
		b.End()
		w.InsertMany(5, 2)
		there := v.record(w).Epoch
		operateWith(w, inStore, "token", "move", "--to", "blob").succeeds()
		require.Greater(w, w.Checkpoint().Epoch, there)
		c := startIn(w, "c", "")
		published(w)
		c.End()

		w.InsertMany(5, 2)
		operate(w, "token", "move", "--to", "vault").succeeds() // over what stayed behind
		startIn(w, "d", "vault")
		published(w)
	})
}

// A move that failed in between has no leader in either store, and is repeated.
func TestG4AMoveThatFailedIsRepeated(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		v := withVault(w)
		startAndPublish(w, "a", nil, 20, 2).End()
		operate(w, "packs", "on", "--readers-know", "--rules-checked").succeeds()
		w.InsertMany(5, 2)

		v.broken = true
		operate(w, "token", "move", "--to", "vault").fails("the vault is closed", "repeat it")
		require.ErrorContains(w, w.StartProducer("late", nil).Failed(), "set CHECKPOINT_STORE=vault")
		v.broken = false
		operate(w, "token", "move", "--to", "vault").succeeds()
		packs, err := v.Get(w.Context(), checkpointBlob+".packs")
		require.NoError(w, err, "the confirmation for packs comes with it")
		require.Contains(w, string(packs.Data), `"on":true`)
		startIn(w, "b", "vault")
		published(w)
	})
}

// A move that would lose events or permit two leaders is refused and changes nothing.
func TestG4AMoveThatWouldDoHarmIsRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		v := withVault(w)
		startAndPublish(w, "a", nil, 20, 2).End()
		for to, want := range map[string]string{"blob": "CHECKPOINT_STORE: is blob already", "mongodb": "CHECKPOINT_MONGODB_URI"} {
			got := operate(w, "token", "move", "--to", to)
			require.Equal(w, commandline.ExitUsage, got.Code)
			require.Contains(w, got.Err, want)
		}

		begin := func() {
			other := w.StartProducer("other", inStore)
			w.Eventually("the stream has a leader in the vault", func() bool { return v.record(w).Leader == "other" })
			other.End()
		}
		w.InsertMany(5, 2) // the backlog, which a stream that begins in the vault would skip
		begin()
		operate(w, "token", "move", "--to", "vault").fails("the store vault has a checkpoint of stream")
		require.NoError(w, v.Delete(w.Context(), checkpointBlob))
		require.NoError(w, v.Delete(w.Context(), checkpointBlob+".began"))
		v.broken = true
		operate(w, "token", "move", "--to", "vault").fails()
		v.broken = false
		require.NoError(w, v.Delete(w.Context(), checkpointBlob+".began")) // it would prevent a new stream
		begin()
		operate(w, "token", "move", "--to", "vault").fails("has begun the stream there and skips what was not published")

		require.NoError(w, v.Delete(w.Context(), checkpointBlob))
		operate(w, "token", "move", "--to", "vault").succeeds()
		operateWith(w, inStore, "token", "move", "--to", "attic").succeeds()
		operate(w, "token", "move", "--to", "vault").fails("the checkpoint was moved on to the store attic")
		operateWith(w, inStore, "token", "move", "--to", "blob").fails("the checkpoint was moved to the store attic")
	})
}
