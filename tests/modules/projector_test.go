package modules_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/modules"
)

// The steps of the example's README work: the example's own test passes, and with the installed
// producer and the embedded servers its read model is built from the events.
func TestAUsersProjectorBuildsItsReadModel(t *testing.T) {
	o := newOutside(t)
	dir, bin := t.TempDir(), t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(o.root, "projector", "examples", "customer-totals"))))
	require.NoError(t, os.Remove(filepath.Join(dir, "go.sum"))) // a copy with other versions generates its own
	for _, module := range []string{"projector", "shared"} {
		o.run(t, dir, nil, "mod", "edit", "-require", modules.Path(module)+"@"+o.proxy.Version)
	}
	o.run(t, dir, nil, "vet", "./...")
	require.Contains(t, o.run(t, dir, nil, "test", "-count", "1", "./..."), "ok")
	o.run(t, dir, nil, "build", "-o", bin, ".", "./shop")
	o.run(t, dir, []string{"GOBIN=" + bin}, "install", modules.Path("producer/cmd/producer")+"@"+o.proxy.Version)

	settings := append(emulator.Start(t, emulator.Options{}).Settings(),
		"MONGODB_DATABASE=shop", "MONGODB_COLLECTION=events", "OPERATIONS=insert", "READ_MODEL_DATABASE=readmodel", "HTTP_ADDR=")
	program := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, name), args...) // SIGTERM ends a service
		cmd.Env = append(os.Environ(), settings...)
		return cmd
	}
	for _, service := range []string{"producer", "customer-totals"} {
		cmd := program(service)
		log := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = log, log
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait(), "%s was asked to stop\n%s", service, log)
			if t.Failed() {
				t.Logf("%s:\n%s", service, log)
			}
		})
	}
	// With START_FROM=latest, what is inserted before the first leader has a position in the stream
	// is not published.
	within(t, time.Minute, "a leader has its place in the stream", func() bool {
		out, err := program("producer", "status", "--json").Output()
		if err != nil {
			return false // there is no checkpoint yet
		}
		var status struct{ Leader, Position string }
		require.NoError(t, json.Unmarshal(out, &status))
		return status.Leader != "" && status.Position != ""
	})
	inserted, err := program("shop").CombinedOutput()
	require.NoError(t, err, string(inserted))
	const want = "ann: 4 orders, 2200 cents paid\neve: 3 orders, 1800 cents paid\nbob: 3 orders, 1500 cents paid\n"
	var printed []byte
	within(t, time.Minute, "the totals are those of the orders", func() bool {
		printed, err = program("shop", "-orders", "0").Output()
		require.NoError(t, err)
		return string(printed) == want
	})
}

// within checks ten times a second until a condition is true.
func within(t *testing.T, d time.Duration, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not in %s: %s", d, what)
		}
	}
}
