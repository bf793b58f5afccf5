package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

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
	says          string // a regular expression that the output must match
	never         string // and one that it must not
}

// outcome is the result of a trial.
type outcome struct {
	code    int
	running bool
	said    string
	wrong   string // empty: as expected
}

// build builds the programs.
func build(ctx context.Context, dir string) error {
	if _, _, err := child.Build(ctx, dir); err != nil {
		return err
	}
	return child.BuildProgram(ctx, "tests/cmd/local", filepath.Join(dir, "local"))
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

// play runs a trial, and returns its result.
func (b *bench) play(ctx context.Context, n int, c tried) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args := c.args
	if c.input != "" {
		file := filepath.Join(b.dir, fmt.Sprintf("input-%d.ndjson", n))
		if err := os.WriteFile(file, []byte(c.input), 0o600); err != nil {
			return outcome{wrong: err.Error()}
		}
		args = append([]string{"--input", file, "--once", "--quiet", "--services", b.dir}, args...)
	}
	cmd := exec.CommandContext(ctx, b.program(c.program), args...)
	cmd.Env, cmd.Dir = b.environment(n, c), b.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	heard := &listener{wanted: regexp.MustCompile(c.says)}
	if c.code == runs {
		heard.then = cancel
	}
	cmd.Stdout, cmd.Stderr = heard, heard
	err := cmd.Run()
	said, heardIt := heard.lastLine()
	o.said, o.code = said, cmd.ProcessState.ExitCode()
	o.running = c.code == runs && heardIt
	switch exit, ok := errors.AsType[*exec.ExitError](err); {
	case c.code == runs && o.running:
	case err != nil && !ok && c.code != runs:
		o.wrong = err.Error()
	case c.code == runs:
		o.wrong = fmt.Sprintf("it did not print %q in %s", c.says, patience)
	case c.code != runs && o.code != c.code:
		o.wrong = fmt.Sprintf("exit code %d was expected (%v)", c.code, exit)
	case !heardIt:
		o.wrong = fmt.Sprintf("it did not print %q", c.says)
	}
	if o.wrong == "" && c.never != "" && regexp.MustCompile(c.never).MatchString(heard.all()) {
		o.wrong = fmt.Sprintf("it must not print %q", c.never)
	}
	return o
}

// listener receives the output of a program.
type listener struct {
	wanted *regexp.Regexp
	then   func() // called when the expected text was printed

	mu   sync.Mutex // guards everything below
	text bytes.Buffer
	done bool
}

func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if !l.done && l.wanted.Match(l.text.Bytes()) {
		l.done = true
		if l.then != nil {
			l.then()
		}
	}
	return len(p), nil
}

func (l *listener) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// lastLine returns the line with the expected text, or else the last line, and whether the text was
// printed.
func (l *listener) lastLine() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(l.text.String()), "\n")
	best := lines[len(lines)-1]
	for _, line := range lines {
		if l.wanted.MatchString(line) {
			best = line
			break
		}
	}
	var record map[string]any
	if json.Unmarshal([]byte(best), &record) == nil {
		said := []string{fmt.Sprint(record["level"], " ", record["msg"])}
		for _, key := range []string{"dependency", "error", "to_do"} {
			if record[key] != nil {
				said = append(said, fmt.Sprintf("%s: %v", key, record[key]))
			}
		}
		best = strings.Join(said, "; ")
	}
	return best, l.done
}

// bench holds the servers and programs for the trials.
type bench struct {
	dir     string
	stack   *stack.Stack
	stop    context.CancelFunc
	serving sync.WaitGroup
}

func open(ctx context.Context) (*bench, error) {
	dir, err := os.MkdirTemp("", "sluice-try-")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir}
	if err := build(ctx, dir); err != nil {
		return nil, err
	}
	if b.stack, err = stack.New(ctx, stack.Options{}); err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.serving.Go(func() { _ = b.stack.Run(serving) })
	return b, nil
}

func (b *bench) close() {
	b.stop()
	b.serving.Wait()
	_ = os.RemoveAll(b.dir)
}

func (b *bench) program(name string) string { return filepath.Join(b.dir, name) }
