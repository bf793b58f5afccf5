package modules_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// A reader follows the guide to projections in an empty folder, with a clone of the repository
// beside it: the files are those that the page shows, and the commands are its shell blocks,
// unchanged except for the servers' ports.
func TestTheGuideWorksInAnEmptyFolder(t *testing.T) {
	g := newGuide(t, "projector", "projection", "README.md")
	shell := g.blocks("sh")
	require.Len(t, shell, 4)
	made, servers, producer, projector := shell[0], shell[1], shell[2], shell[3]
	console := g.blocks("console")
	require.Len(t, console, 2)
	tested, shop := commands(console[0]), commands(console[1])

	parent := t.TempDir()
	require.NoError(t, os.Symlink(g.root, filepath.Join(parent, "sluice")))
	g.bash(t, parent, made)
	dir := filepath.Join(parent, "customer-totals")
	for name, code := range g.files() {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(code), 0o600))
	}
	require.Contains(t, g.bash(t, dir, tested), "--- PASS: TestCustomerTotals")

	g.start(t, dir, strings.Replace(servers, "sluice-emulator", "sluice-emulator --ports free", 1)) // the standard ports may be in use
	within(t, 5*time.Minute, "the servers print their settings", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "stack.env"))
		return err == nil && strings.Contains(string(text), "EMULATOR_CONTROL=")
	})
	leads := g.start(t, dir, producer)
	within(t, 5*time.Minute, "the producer logs that it leads", func() bool { return strings.Contains(leads(), `"leading"`) })
	g.start(t, dir, projector)
	insert, printed, found := strings.Cut(shop, "\ngo run ./shop -orders 0")
	require.True(t, found, shop)
	g.bash(t, dir, insert)
	load, _, _ := strings.Cut(shop, "\n")
	_, want, _ := strings.Cut(console[1], "# only prints\n")
	within(t, 5*time.Minute, "the totals are those that the page shows", func() bool {
		return g.bash(t, dir, load+"\ngo run ./shop -orders 0"+printed) == want
	})
}

// guide is a page of the documentation, and the repository that it is in.
type guide struct{ root, text string }

func newGuide(t *testing.T, path ...string) guide {
	t.Helper()
	root, err := child.Checkout()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	require.NoError(t, err)
	return guide{root, string(text)}
}

// blocks returns the page's code blocks of a kind.
func (g guide) blocks(kind string) (all []string) {
	for _, b := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```\n").FindAllStringSubmatch(g.text, -1) {
		all = append(all, b[1])
	}
	return all
}

// files returns the files that the page shows in full, by name.
func (g guide) files() map[string]string {
	files := map[string]string{}
	for _, f := range regexp.MustCompile("(?s)<!-- (\\S+) -->\n```go\n(.*?)```\n").FindAllStringSubmatch(g.text, -1) {
		files[f[1]] = f[2]
	}
	return files
}

// commands returns the commands of a block that also shows their output.
func commands(console string) string {
	var typed []string
	for line := range strings.Lines(console) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			typed = append(typed, command)
		}
	}
	return strings.TrimSuffix(strings.Join(typed, ""), "\n")
}

// shell prepares a script as a reader would run it, in an environment without this repository's
// workspace.
func (g guide) shell(t *testing.T, dir, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-e", "-o", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=", "HTTP_ADDR=127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// bash runs a script and returns what it prints.
func (g guide) bash(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := g.shell(t, dir, script)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s%s", script, out, &complaints)
	return string(out)
}

// start runs a script in a terminal session of its own, until the test ends, and returns what
// reads all that it has printed so far.
func (g guide) start(t *testing.T, dir, script string) (text func() string) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "output")
	require.NoError(t, err)
	text = func() string {
		printed, err := os.ReadFile(out.Name())
		require.NoError(t, err)
		return string(printed)
	}
	cmd := g.shell(t, dir, script)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)) // Ctrl-C
		_ = cmd.Wait()                                                     // the signal is the last exit code
		if t.Failed() {
			t.Logf("%s:\n%s", script, text())
		}
		require.NoError(t, out.Close())
	})
	return text
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
