// Package supervise runs the producer as the child of a small process, which releases the child's
// leases when it dies.
//
// A process that panics, runs out of memory or is killed cannot release its leases, and until a
// standby detects its silence no replica publishes. Its parent detects its death at once, and knows
// that nothing more will be sent: it releases the leases, and the next leader publishes within one
// poll of a standby. Only the loss of the machine, or of both processes together, takes
// TAKEOVER_AFTER.
//
// Guaranteed: a lease is released only after its holder has ended; a child whose parent has died
// ends as well. The parent keeps the lease ids in memory, and accesses storage at no other time.
package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// variable marks a process as the child. Its files are then those that Run has opened for it.
const variable = "SLUICE_SUPERVISED"

// The child's file descriptors in addition to the standard ones.
const (
	fdLeases = 3 + iota // the leases that it holds, one line each
	fdLife              // closed when its parent ends
)

// holding is one line: the stream's lease that the child requests or holds, or "" once it has
// released it.
type holding struct {
	Stream string `json:"stream"`
	Lease  string `json:"lease,omitempty"`
}

// Ended reports how a child failed.
type Ended struct{ State *os.ProcessState }

func (e *Ended) Error() string { return "the producer's process ended: " + e.State.String() }

// ExitCode returns the child's exit code, or 128 plus the signal that killed it, as in a shell.
func (e *Ended) ExitCode() int {
	if status, ok := e.State.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return e.State.ExitCode()
}

// Run runs a command as a child, with this process's environment and standard files, until it ends.
// When ctx ends, Run sends SIGTERM to the child and keeps waiting. If the child fails, release
// receives the leases that it held, by stream. An error is an [*Ended], or reports that the child
// could not be started.
func Run(ctx context.Context, command []string, release func(ended *Ended, held map[string]string)) error {
	leases, report, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open a pipe: %w", err)
	}
	defer func() { _ = leases.Close() }() // it was only read
	ends, life, err := os.Pipe()
	if err != nil {
		return errors.Join(fmt.Errorf("open a pipe: %w", err), report.Close())
	}
	defer func() { _ = life.Close() }() // nothing is written to it

	child := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // this program itself; ctx asks it to stop, in order
	child.Env = append(os.Environ(), variable+"=1")
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{report, ends}
	err = child.Start()
	if err := errors.Join(err, report.Close(), ends.Close()); err != nil {
		return fmt.Errorf("start the producer's process: %w", err)
	}
	// an error means that it has ended
	stop := context.AfterFunc(ctx, func() { _ = child.Process.Signal(syscall.SIGTERM) })
	defer stop()

	held := read(leases) // until the child has ended
	_ = child.Wait()     // its state is more specific than the error
	ended := &Ended{child.ProcessState}
	if len(held) > 0 {
		release(ended, held)
	}
	if child.ProcessState.Success() {
		return nil
	}
	return ended
}

// read returns what the child holds when it stops writing.
func read(from io.Reader) map[string]string {
	held := map[string]string{}
	for lines := json.NewDecoder(from); ; {
		var h holding
		if lines.Decode(&h) != nil { // the end, perhaps in the middle of a line
			return held
		}
		if h.Lease == "" {
			delete(held, h.Stream)
		} else {
			held[h.Stream] = h.Lease
		}
	}
}

// Parent is a child's connection to its parent.
type Parent struct {
	leases *os.File
	life   *os.File
}

// Inherited returns this process's connection to its parent, or nil if it has none. It is called
// once.
func Inherited() *Parent {
	if os.Getenv(variable) == "" {
		return nil
	}
	_ = os.Unsetenv(variable) // it is not a setting, and must not be inherited by a child of this process
	return &Parent{os.NewFile(fdLeases, "leases"), os.NewFile(fdLife, "life")}
}

// Hold reports to the parent that this process requests or holds a lease of a stream or, with "",
// that it does not any more. Several goroutines may call it at once. A dead parent is detected
// elsewhere.
func (p *Parent) Hold(stream, lease string) {
	line, err := json.Marshal(holding{stream, lease})
	if err != nil {
		return // never, for two strings
	}
	_, _ = p.leases.Write(append(line, '\n')) // one write, so that lines of several streams do not mix
}

// Gone returns when the parent has ended.
func (p *Parent) Gone() { _, _ = p.life.Read(make([]byte, 1)) }
