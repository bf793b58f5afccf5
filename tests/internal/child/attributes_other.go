//go:build !linux

package child

import "syscall"

// attributes gives a process a group of its own. Only Linux can tie its life to ours as well.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
