package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// Another process simulates a smaller plan and reports which promises it broke; nothing if it broke
// none.
func TestAPlanIsJudgedInAProcessOfItsOwn(t *testing.T) {
	virtualtime.Require(t)
	p := plan.Draw(3)
	p.Steps, p.Garbage, p.Bursts = nil, nil, p.Bursts[:1]
	p.Heals = p.Bursts[0].At
	gaveUp := checker.ErrGaveUp.Error()
	broken, err := elsewhere(t.Context(), t.TempDir(), p, gaveUp)
	require.NoError(t, err)
	require.Empty(t, broken)

	p.Settings.Receiver = "none that there is"
	broken, err = elsewhere(t.Context(), t.TempDir(), p, gaveUp)
	require.NoError(t, err)
	require.Contains(t, broken, gaveUp)
}
