package child

import "syscall"

// attributes returns the attributes of a process with a group of its own, which the kernel kills
// when this process dies without a chance to stop it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
