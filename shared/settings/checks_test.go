package settings_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/settings"
)

func TestChecksCollectWhatIsWrong(t *testing.T) {
	var c settings.Checks
	c.Add(
		settings.AtLeast("A", 1, 1), settings.AtMost("A", 1, 1), settings.Between("A", 1, 1, 1), settings.OneOf("A", "x", "y", "x"),
		settings.ContainerName("A", "check-points"), nil,
	)
	c.Require(true, "A: must not be")
	require.NoError(t, c.Err())
	c.Add(
		settings.AtLeast("B", 500*time.Millisecond, time.Second), settings.AtMost("C", 3, 2), settings.Between("D", 0, 1, 9),
		settings.OneOf("E", "z", "x", "y"), settings.ContainerName("F", "check--points"), settings.ContainerName("G", "aa"), errors.New("H: all"),
	)
	c.Require(false, "I: must be %d", 7)
	require.EqualError(t, c.Err(), `B: must be at least 1s (it is 500ms)
C: must be at most 2 (it is 3)
D: must be from 1 to 9 (it is 0)
E: must be one of x, y (it is "z")
F: must have 3 to 63 lower-case letters, digits and single hyphens between them (it is "check--points")
G: must have 3 to 63 lower-case letters, digits and single hyphens between them (it is "aa")
H: all
I: must be 7`)
}
