package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// shared is what the tests have started and created. Each part is written within a sync.Once, and
// read when all tests have ended.
var shared struct {
	azurite *azurite.Process
	dirs    []string
	mu      sync.Mutex // guards dirs
}

// Run runs the tests, and releases what they share.
func (s tests) Run() (code int) {
	defer func() {
		var err error
		if shared.azurite != nil {
			err = shared.azurite.Stop()
		}
		for _, dir := range shared.dirs {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		if err != nil {
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

// Each of these is made by the first test that needs it.
var (
	services = sync.OnceValues(func() (dir string, err error) {
		return built(func(ctx context.Context, dir string) error {
			_, _, err := child.Build(ctx, dir)
			return err
		})
	})
	storage = sync.OnceValues(func() (addr string, err error) {
		if shared.azurite, err = azurite.Start(context.Background(), azurite.Options{}); err != nil {
			return "", err
		}
		return shared.azurite.Addr(), nil
	})
)

func built(build func(ctx context.Context, dir string) error) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "chaos"); err != nil {
		return "", err
	}
	shared.mu.Lock()
	shared.dirs = append(shared.dirs, dir)
	shared.mu.Unlock()
	return dir, build(context.Background(), dir)
}

// programs returns the paths of the built services, and the address of an Azurite that runs until
// all tests have ended.
func programs(t *testing.T) (producer, projector, azuriteAddr string) {
	t.Helper()
	azuriteAddr, err := storage()
	if errors.Is(err, azurite.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skipf("without Azurite: %v", err)
	}
	require.NoError(t, err)
	dir, err := services()
	require.NoError(t, err)
	return filepath.Join(dir, "producer"), filepath.Join(dir, "projector"), azuriteAddr
}
