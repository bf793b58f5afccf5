package programs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// runs is the exit code of a program that keeps running: it is ended once it has printed the
// expected text.
const runs = -1

// patience bounds the wait for any output.
const patience = time.Minute

// tried is one trial.
type tried struct {
	name, program string
	args          []string
	set           map[string]string // in addition to working settings; "-" removes a variable
	input         string            // the content of the file for --input
	code          int
	want          string // a regular expression that the output must match
	never         string // and one that it must not
}

// environment returns settings with which the programs work, with a database of their own, as
// changed by the trial.
func (b *bench) environment(n int, c tried) []string {
	values := map[string]string{
		"MONGODB_DATABASE": fmt.Sprintf("try_%d", n), "MONGODB_COLLECTION": "events", "HTTP_ADDR": "127.0.0.1:0", "READ_MODEL_DATABASE": fmt.Sprintf("try_%d_read", n),
	}
	for _, setting := range b.stack.Settings() {
		name, value, _ := strings.Cut(setting, "=")
		values[name] = value
	}
	if c.program == "producer" {
		delete(values, "SERVICE_BUS_SUBSCRIPTION")
	}
	if c.program == "local" {
		values = map[string]string{}
	}
	for name, value := range c.set {
		if values[name] = strings.ReplaceAll(value, "BUS", stack.Host(b.stack.Endpoint("SERVICE_BUS_CONNECTION_STRING"))); value == "-" {
			delete(values, name)
		}
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	return env
}

// play runs a trial.
func (b *bench) play(t *testing.T, n int, c tried) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := c.args
	if c.input != "" {
		file := filepath.Join(b.dir, fmt.Sprintf("input-%d.ndjson", n))
		require.NoError(t, os.WriteFile(file, []byte(c.input), 0o600))
		args = append([]string{"--input", file, "--once", "--quiet", "--services", b.dir}, args...)
	}
	cmd := exec.CommandContext(ctx, b.program(c.program), args...)
	cmd.Env, cmd.Dir = b.environment(n, c), b.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	heard := &listener{wanted: regexp.MustCompile(c.want), then: func() {}}
	if c.code == runs {
		heard.then = cancel
	}
	cmd.Stdout, cmd.Stderr = heard, heard
	err := cmd.Run()
	output := heard.text.String()
	require.Regexp(t, c.want, output)
	if c.never != "" {
		require.NotRegexp(t, c.never, output)
	}
	if c.code != runs {
		require.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%v; output: %s", err, output)
	}
}

// listener receives the output of a program.
type listener struct {
	text   bytes.Buffer
	wanted *regexp.Regexp
	then   func() // called when the expected text was printed
}

func (l *listener) Write(p []byte) (int, error) {
	l.text.Write(p)
	if l.wanted.Match(l.text.Bytes()) {
		l.then()
	}
	return len(p), nil
}

// bench holds the servers and programs for the trials.
type bench struct {
	dir   string
	stack *stack.Stack
}

// open builds the programs, and runs servers until the test ends.
func open(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	_, _, err := child.Build(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, child.BuildProgram(t.Context(), "tests/cmd/local", filepath.Join(dir, "local")))
	return serve(t, dir, 0)
}

// serve runs servers that are a round trip away until the test ends, for the programs in a folder.
func serve(t *testing.T, dir string, roundTrip time.Duration) *bench {
	t.Helper()
	s, err := stack.New(t.Context(), stack.Options{Options: emulator.Options{Latency: roundTrip}})
	require.NoError(t, err)
	serving, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(serving) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return &bench{dir, s}
}

func (b *bench) program(name string) string { return filepath.Join(b.dir, name) }
