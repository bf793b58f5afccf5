package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// patience bounds one program of scenarios, each of which has a much shorter limit.
const patience = 2 * time.Minute

// client is a language with the official clients in it.
type client struct {
	name    string
	dir     string // of its programs, and the suffix of their names
	suffix  string
	command string   // what runs them
	args    []string // before the program's name
	env     []string
}

// javaScript skips the test where Node or the packages are not; with CI=true it fails: there they
// must be.
func javaScript(t *testing.T) client {
	t.Helper()
	without := func(why string) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatal("JavaScript must run:", why)
		}
		t.Skip("without JavaScript:", why)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		without("node is not on the PATH")
	}
	modules, err := filepath.Abs("javascript/node_modules")
	require.NoError(t, err)
	if _, err := os.Stat(modules); err != nil {
		without("the packages are not installed: tests/emulator/scripts/clients.sh does it")
	}
	return client{name: "JavaScript", dir: "javascript", suffix: ".js", command: node, env: []string{"NODE_PATH=" + modules}}
}

// python skips the test where Python or the packages are not.
func python(t *testing.T) client {
	t.Helper()
	return interpreted(t, "python/.interpreter")
}

// proton is Python with Qpid Proton.
func proton(t *testing.T) client {
	t.Helper()
	c := interpreted(t, "python/.proton")
	c.name = "Qpid Proton"
	return c
}

// interpreted returns Python as configured in a file that tests/emulator/scripts/clients.sh wrote.
func interpreted(t *testing.T, file string) client {
	t.Helper()
	interpreter, err := os.ReadFile(file) //nolint:gosec // a file of this directory
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("without Python: the packages are not installed: tests/emulator/scripts/clients.sh does it, where python3 and a registry are")
	}
	require.NoError(t, err)
	command := strings.TrimSpace(string(interpreter))
	if _, err := os.Stat(command); err != nil {
		t.Skip("without Python: what tests/emulator/scripts/clients.sh installed is gone; run it again")
	}
	return client{name: "Python", dir: "python", suffix: ".py", command: command, env: []string{"PYTHONDONTWRITEBYTECODE=1"}}
}

// shell is mongosh, which brings so much that it runs where CLIENTS=all asks for it.
func shell(t *testing.T) client {
	t.Helper()
	if os.Getenv("CLIENTS") != "all" {
		t.Skip("without mongosh: make clients runs it")
	}
	modules, err := filepath.Abs("mongosh/node_modules")
	require.NoError(t, err)
	if _, err := os.Stat(modules); err != nil {
		t.Skip("without mongosh: the package is not installed: tests/emulator/scripts/clients.sh does it, where npm and a registry are")
	}
	return client{
		name: "mongosh", dir: "mongosh", suffix: ".js", command: filepath.Join(modules, ".bin", "mongosh"),
		args: []string{"--nodb", "--quiet", "--norc", "--file"}, env: []string{"HOME=" + t.TempDir()}, // where it keeps its logs
	}
}

// java compiles the programs. It takes some ten seconds of processor, so it runs where CLIENTS=all
// asks for it (make clients), and skips without a compiler or the packages.
func java(t *testing.T) client {
	t.Helper()
	if os.Getenv("CLIENTS") != "all" {
		t.Skip("without Java: make clients runs it")
	}
	where, err := os.ReadFile("java/.classpath")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("without Java: the packages are not installed: tests/emulator/scripts/clients.sh does it, where javac, mvn and a registry are")
	}
	require.NoError(t, err)
	packages := filepath.Join(strings.TrimSpace(string(where)), "*")
	sources, err := filepath.Glob("java/*.java")
	require.NoError(t, err)
	classes := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "javac", append([]string{"-nowarn", "-cp", packages, "-d", classes}, sources...)...).CombinedOutput() //nolint:gosec // programs of this directory
	require.NoError(t, err, "%s", out)
	table, err := filepath.Abs("mongodb.json")
	require.NoError(t, err)
	return client{
		name: "Java", dir: "java", command: "java", args: []string{"-XX:TieredStopAtLevel=1", "-cp", classes + string(filepath.ListSeparator) + packages},
		env: []string{"SCENARIOS=" + table},
	}
}

// run runs a program with the settings of the stack, and gives what it printed.
func (c client) run(t *testing.T, s *emulator.Stack, dir, program string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+c.suffix))
	require.NoError(t, err)
	for _, name := range files { // so that the go command runs the test again when they change
		_, _ = os.Stat(name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.command, append(slices.Clone(c.args), program+c.suffix)...) //nolint:gosec // a program of this directory
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), s.Settings()...), c.env...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, "%s %s: %s\n%s", c.command, program+c.suffix, out, problems.String())
	return out
}

// result is the result of one scenario, as a program prints it.
type result struct {
	Area, Name, Outcome, Detail string
}

func results(t *testing.T, out []byte) []result {
	t.Helper()
	var all []result
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r result
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r), lines.Text())
		all = append(all, r)
	}
	return all
}

// program returns the program of an area: Java's are classes, whose names begin with a capital.
func (c client) program(area string) string {
	if c.dir == "java" {
		return strings.ToUpper(area[:1]) + area[1:]
	}
	return area
}
