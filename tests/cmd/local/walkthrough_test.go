//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// TestTheWalkthroughIsTrue runs the commands of docs/install.md, word for word.
func TestTheWalkthroughIsTrue(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs and starts them")
	}
	root, err := child.Checkout()
	require.NoError(t, err)
	page, err := os.ReadFile(root + "/docs/install.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```bash\n")
	require.True(t, found)
	script, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)

	// It builds the programs: minutes if nothing is in the cache and other tests run.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, "bash", "-e", "-c", "trap 'kill $(jobs -pr) 2>/dev/null' EXIT\n"+script) // a command that fails leaves nothing behind
	run.Dir = root                                                                                           // it writes only to bin/
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
	for _, kept := range os.Environ() {
		if name, _, _ := strings.Cut(kept, "="); name == "PATH" || name == "HOME" || strings.HasPrefix(name, "GO") || name == "XDG_CACHE_HOME" {
			run.Env = append(run.Env, kept)
		}
	}
	run.Env = append(run.Env, "CGO_ENABLED=0") // like other programs that tests build
	out, err := run.CombinedOutput()
	text := string(out)
	require.NoError(t, ctx.Err(), text)
	for _, want := range []string{"state           published by its leader", "3 inserted", "of aggregate order-1", "no aggregate is parked", "3 events, 1 document: all right"} {
		require.Contains(t, text, want)
	}
	require.Regexp(t, `leader +second`, text)
	version, failed := exec.CommandContext(t.Context(), root+"/bin/producer", "version").Output()
	require.NoError(t, failed)
	require.Regexp(t, `^producer [0-9a-f]{7,}|^producer v?[0-9]+\.`, string(version), "make build stamps the version of git")
	_ = err // the signal that ends what was started is the last exit code
}

// A mistyped variable would otherwise be a run without what was asked for, which comes out right.
func TestMakeRefusesVariablesThatNoTargetTakes(t *testing.T) {
	t.Parallel()
	root, err := child.Checkout()
	require.NoError(t, err)
	for variable, refused := range map[string]bool{
		"CHOAS=kill-leader@3s": true, "MONGODB_COLLECTOIN=orders": true,
		"CHAOS=kill-leader@3s": false, "FULL_DOCUMENT=required": false, "GOFLAGS=-v": false, "ON_COLLECTION_REPLACED=continue": false,
	} {
		cmd := exec.CommandContext(t.Context(), "make", "--dry-run", "run", variable)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if name, _, _ := strings.Cut(variable, "="); refused {
			require.Error(t, err)
			require.Contains(t, string(out), "no target takes "+name+"; the variables are")
			continue
		}
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "compiling; the first time takes a minute or two")
	}
}
