package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// tests are all tests of this package, and what they share: the programs, each built once, and one
// Azurite, in which every ring has a container of its own.
type tests struct{ *testing.M }

// shared is what start has started and created, for the time when all tests have ended.
var shared struct {
	azurite *azurite.Process
	dir     string
}

// Run runs the tests, and releases what they share.
func (s tests) Run() (code int) {
	defer func() {
		var err error
		if shared.azurite != nil {
			err = shared.azurite.Stop()
		}
		if err = errors.Join(err, os.RemoveAll(shared.dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return s.M.Run()
}

// room limits the rings that run at once: three for each processor, or as many as CHAOS_RINGS
// requests. With more of them, leaders would lose their leases for want of a processor, and their
// successors would, too.
var room = func() chan struct{} {
	asked, _ := strconv.Atoi(os.Getenv("CHAOS_RINGS")) // setting reports an invalid number
	return make(chan struct{}, max(asked, 3*runtime.NumCPU()))
}()

// enter waits for room. The function that it returns gives the room back.
func enter() (leave func()) {
	room <- struct{}{}
	return func() { <-room }
}

// services are the built programs, and the host:port of an Azurite that runs until all tests have
// ended.
type services struct{ producer, projector, blobURL string }

// start is called by the first test that needs the services.
var start = sync.OnceValues(func() (s services, err error) {
	ctx := context.Background()
	if shared.azurite, err = azurite.Start(ctx, azurite.Options{}); err != nil {
		return s, err
	}
	s.blobURL = shared.azurite.Addr()
	if shared.dir, err = os.MkdirTemp("", "chaos"); err != nil {
		return s, err
	}
	s.producer, s.projector, err = child.Build(ctx, shared.dir)
	return s, err
})

// programs returns the services; without Azurite it skips the test, or fails it if CI is true.
func programs(t *testing.T) services {
	t.Helper()
	s, err := start()
	if errors.Is(err, azurite.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skipf("without Azurite: %v", err)
	}
	require.NoError(t, err)
	return s
}
