package mongodb

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAVersionNamesWhatItLacks(t *testing.T) {
	for _, c := range []struct {
		version   Version
		supported bool
		lacks     int
	}{
		{Version{4, 2, 24}, false, 4},
		{Version{4, 4, 0}, true, 4},
		{Version{4, 4, 29}, true, 4},
		{Version{5, 0, 0}, true, 3},
		{Version{6, 0, 8}, true, 1},
		{Version{6, 0, 9}, true, 0},
		{Version{7, 0, 0}, true, 0},
		{Version{8, 0, 4}, true, 0},
		{Version{10, 1, 0}, true, 0},
	} {
		require.Equal(t, c.supported, c.version.Supported(), c.version)
		require.Len(t, c.version.Lacks(), c.lacks, c.version)
	}
	require.Equal(t, []string{"splitting changes of more than 16 MB (since 6.0.9)"}, Version{6, 0, 8}.Lacks())
}
