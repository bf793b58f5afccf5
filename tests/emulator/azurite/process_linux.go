package azurite

import (
	"os/exec"
	"syscall"
)

// isolate gives the child a process group of its own, which can be killed as a whole, and has the
// kernel kill it when the thread that started it ends.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
