package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProjectorMakesATimeline(t *testing.T) {
	inWorld(t, 0, func(w *projectorWorld) {
		p := w.start(nil)
		w.publish(event("order-1", 1, "SRM: Created"), event("order-1", 2, "Execution Syst.(v1)"), event("order-1", 3, "SRM: Created"))
		w.completed(3)
		counted, err := p.end()
		require.NoError(w, err)
		require.Equal(w, 3, counted.Applied)
		require.Zero(w, counted.Duplicates)

		doc := w.timeline("order-1")
		require.Equal(w, int64(3), doc.Events)
		require.Equal(w, map[string]int64{"SRM: Created": 2, "Execution Syst%2E(v1)": 1}, doc.Types)
		require.Equal(w, "2026-01-01T00:00:01Z", doc.First)
		require.Equal(w, "2026-01-01T00:00:03Z", doc.Last)
		require.Equal(w, "SRM: Created", doc.Type)
		require.Equal(w, int64(3), doc.Guard.Version)
	})
}
