//go:build !linux

package cable

import (
	"os"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/netns"
)

// open works only on Linux.
func open(string) (*os.File, error) { return nil, netns.ErrUnavailable }
