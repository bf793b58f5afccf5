package deploy

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// standIn creates a program with the given name, first on PATH, which appends its command line to a
// file.
func standIn(t *testing.T, dir, name, script string) {
	t.Helper()
	text := "#!/bin/sh\nprintf '%s\\n' \"" + name + " $*\" >>" + filepath.Join(dir, "calls") + "\n" + script
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
}

// ran is what a script has done: what it printed, and the command lines of its stand-ins.
type ran struct {
	out, errOut, calls string
	code               int
}

// run runs a command in the root of the repository, with the stand-ins of dir first on PATH and
// with no variables but env.
func run(t *testing.T, dir string, env []string, command ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // some scripts wait for az
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = root
	cmd.Env = append([]string{"PATH=" + dir + ":" + os.Getenv("PATH"), "OPERATE_POLL=0"}, env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, "%v: %v", command, err)
	calls, _ := os.ReadFile(filepath.Join(dir, "calls")) // is not there if no stand-in was called
	return ran{out.String(), errOut.String(), string(calls), cmd.ProcessState.ExitCode()}
}
