package producer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// checked is a store whose service has problems.
type checked struct {
	storetest.Memory
	problems error
}

func (c *checked) Check(context.Context) error { return c.problems }

func inStore(c *producer.Config) { c.CheckpointStore = "vault" }

// The doctor lets a store examine its service, and rehearses heartbeats in it.
func TestTheDoctorExaminesTheServiceOfAStore(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		vault := &checked{}
		w.Store = func(name string) (store.Store, error) {
			require.Equal(w, "vault", name)
			return vault, nil
		}
		well := operateWith(w, inStore, "doctor")
		require.Equal(t, 0, well.Code)
		require.Regexp(t, `ok +checkpoint store +its service is configured to keep what it acknowledges`, well.Out)
		require.Regexp(t, `ok +leadership times +of 100 heartbeats`, well.Out)
		names, err := vault.List(w.Context(), "")
		require.NoError(t, err)
		require.Empty(t, names, "the scratch checkpoint is removed")

		vault.problems = errors.Join(errors.New("keys are evicted"), errors.New("nothing is on disk"))
		ill := operateWith(w, inStore, "doctor")
		require.Equal(t, 1, ill.Code)
		require.Regexp(t, `PROBLEM +checkpoint store +keys are evicted\. nothing is on disk\. To fix it: correct the settings`, ill.Out)
	})
}
