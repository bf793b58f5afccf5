//go:build !linux

package azurite

import "os/exec"

// isolate does nothing here: the process is killed alone, by Stop only.
func isolate(*exec.Cmd) {}
