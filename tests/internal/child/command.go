package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Command runs a program to its end, as an operator does, and returns its exit code and the text of
// both of its outputs. When ctx ends the program is killed, and the code is -1. An error means that
// it cannot be run.
func Command(ctx context.Context, env []string, program string, args ...string) (code int, output string, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(clean(os.Environ()), env...)
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended && ctx.Err() == nil {
		return 0, "", fmt.Errorf("run %s: %w", program, err)
	}
	if cmd.ProcessState == nil {
		return -1, "", nil // it was not started
	}
	return cmd.ProcessState.ExitCode(), string(text), nil
}
