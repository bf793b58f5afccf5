// Package supervise runs the producer as the child of a small process, which gives back what the child held when it dies.
//
// A process that panics, runs out of memory or is killed cannot release its leases, and until somebody notices its silence nobody
// publishes. Its parent knows at once, and knows that nothing will be sent any more: it releases them, and the next leader publishes
// within one look of a standby. Only the loss of the machine, or of both processes together, takes TAKEOVER_AFTER.
//
// Guaranteed: a lease is released only after its holder has ended; a child whose parent has died ends as well. The parent keeps the
// lease ids in memory, and touches storage at no other time.
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

// variable tells a process that it is the child. Its files are then what Run has opened for it.
const variable = "SLUICE_SUPERVISED"

// The child's file descriptors besides the standard ones.
const (
	fdLeases = 3 + iota // what it holds, line by line
	fdLife              // ends when its parent does
)

// holding is one line: the stream's lease that the child asks for or holds; none when it has given it back.
type holding struct {
	Stream string `json:"stream"`
	Lease  string `json:"lease,omitempty"`
}

// Ended is how a child ended that has not ended well.
type Ended struct{ State *os.ProcessState }

func (e *Ended) Error() string { return "the producer's process ended: " + e.State.String() }

// ExitCode is the child's, or 128 and the signal that killed it, as a shell has it.
func (e *Ended) ExitCode() int {
	if status, ok := e.State.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return e.State.ExitCode()
}

// Run runs a command as a child, with this process's environment and standard files, until it ends. When ctx ends it asks the child
// to stop, by SIGTERM, and waits on. What the child holds at its end, lease ids by stream, is given to release. An error is an
// [*Ended], or says that the child could not be started.
func Run(ctx context.Context, command []string, release func(ended *Ended, held map[string]string)) error {
	leases, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open a pipe: %w", err)
	}
	defer func() { _ = leases.Close() }() // it was only read
	ends, life, err := os.Pipe()
	if err != nil {
		return errors.Join(fmt.Errorf("open a pipe: %w", err), tell.Close())
	}
	defer func() { _ = life.Close() }() // nothing is written to it

	child := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // this program itself; ctx asks it to stop, in order
	child.Env = append(os.Environ(), variable+"=1")
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{tell, ends}
	err = child.Start()
	if err := errors.Join(err, tell.Close(), ends.Close()); err != nil {
		return fmt.Errorf("start the producer's process: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = child.Process.Signal(syscall.SIGTERM) }) // an error means that it has ended
	defer stop()

	held := read(leases) // until the child has ended
	_ = child.Wait()     // its state says more than the error
	ended := &Ended{child.ProcessState}
	if len(held) > 0 {
		release(ended, held)
	}
	if child.ProcessState.Success() {
		return nil
	}
	return ended
}

// read follows what the child holds until it writes no more.
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

// Parent is a child's line to its parent.
type Parent struct {
	leases *os.File
	life   *os.File
}

// Inherited is this process's line to its parent; nil where it has none. It is asked once.
func Inherited() *Parent {
	if os.Getenv(variable) == "" {
		return nil
	}
	_ = os.Unsetenv(variable) // it is no setting, and no child's of ours
	return &Parent{os.NewFile(fdLeases, "leases"), os.NewFile(fdLife, "life")}
}

// Hold says that this process asks for a lease of a stream or holds it, or, with "", that it does not any more. It may be called
// by several goroutines at once. That the parent is gone shows elsewhere.
func (p *Parent) Hold(stream, lease string) {
	line, err := json.Marshal(holding{stream, lease})
	if err != nil {
		return // of two strings: never
	}
	_, _ = p.leases.Write(append(line, '\n')) // one write, so that lines of several streams do not mix
}

// Gone returns when the parent has ended.
func (p *Parent) Gone() { _, _ = p.life.Read(make([]byte, 1)) }
