package virtualtime_test

import (
	"go/version"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func TestUnderTheRaceDetectorABubbleRunsWhereItCan(t *testing.T) {
	sound := version.Compare(runtime.Version(), "go1.27") >= 0
	for how, runs := range map[string]bool{"": sound, "run": true, "skip": false} {
		t.Run("VIRTUALTIME_RACE="+how, func(t *testing.T) {
			t.Setenv("VIRTUALTIME_RACE", how)
			ran := false
			t.Run("Test", func(t *testing.T) { virtualtime.Test(t, func(*testing.T) { ran = true }) })
			require.Equal(t, runs || !virtualtime.Detector, ran)
			ran = false
			t.Run("Require", func(t *testing.T) { virtualtime.Require(t); ran = true })
			require.Equal(t, runs || !virtualtime.Detector, ran)
		})
	}
}

func TestWhatTakesRealTimeIsLeftOutWhenToldSo(t *testing.T) {
	for how, runs := range map[string]bool{"": true, "skip": false} {
		t.Run("VIRTUALTIME_REAL="+how, func(t *testing.T) {
			t.Setenv("VIRTUALTIME_REAL", how)
			ran := false
			t.Run("Real", func(t *testing.T) { virtualtime.Real(t); ran = true })
			require.Equal(t, runs, ran)
		})
	}
}
