package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs f on a thread in the namespace. Goroutines that f starts are not in it.
func (n *Namespace) Do(f func() error) error {
	runtime.LockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("remember the thread's namespace: %w", err)
	}
	defer func() { _ = here.Close() }() // it was only read
	if err := unix.Setns(int(n.handle.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", n.name, err)
	}
	err = f()
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked: it ends with the goroutine, and no other goroutine gets it.
		return errors.Join(err, fmt.Errorf("leave namespace %s: %w", n.name, back))
	}
	runtime.UnlockOSThread()
	return err
}
