//go:build !linux

package child

import "syscall"

// attributes returns the attributes of a process with a group of its own. Only Linux can also end
// it together with this process.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
