package child

import "syscall"

// attributes gives a process a group of its own, and lets the kernel kill it when this process dies without a chance to
// stop it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
