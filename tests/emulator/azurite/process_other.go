//go:build !linux

package azurite

import "os/exec"

// isolate does nothing here: Stop kills the process, and nothing else does.
func isolate(*exec.Cmd) {}
