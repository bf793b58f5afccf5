// Package netns creates network namespaces (`ip netns`) and works within them: the command of
// [Namespace.Enter] starts a process in one, and this process listens and dials there.
//
// Guaranteed: a namespace's name identifies its owner, so that those of killed runs can be
// distinguished from those in use; [New] removes the former. A socket belongs to the namespace in
// which it was created, whichever goroutine uses it, so a server of this process can serve in
// several namespaces at once.
//
// It needs Linux, root (the right to administer the network), and iproute2; [Probe] reports what is
// missing.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/procfs"
)

// ErrUnavailable means that namespaces cannot be created on this machine.
var ErrUnavailable = errors.New("network namespaces are not available")

const (
	// folder is where "ip netns" keeps the namespaces.
	folder = "/run/netns"
	// prefix begins the names; the process and its start time follow.
	prefix = "sluice-"
)

var made atomic.Int64

// Namespace is a network namespace with a loopback interface.
type Namespace struct {
	name   string
	handle *os.File
}

// Probe reports, by [ErrUnavailable], why namespaces cannot be created here; nil means that one
// was.
func Probe(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: this needs root", ErrUnavailable)
	}
	if _, err := command(); err != nil {
		return fmt.Errorf("%w: install iproute2: %w", ErrUnavailable, err)
	}
	n, err := New(ctx, "probe")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return n.Close(ctx)
}

// New creates a namespace. Before the first one it removes those that dead processes have left
// behind. [Namespace.Close] removes the namespace.
func New(ctx context.Context, name string) (_ *Namespace, err error) {
	own, err := owner(os.Getpid())
	if err != nil {
		return nil, err
	}
	number := made.Add(1)
	if number == 1 {
		if err := removeStale(ctx); err != nil {
			return nil, err
		}
	}
	n := &Namespace{name: fmt.Sprintf("%s%s-%d-%s", prefix, own, number, name)}
	if err := IP(ctx, "netns", "add", n.name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close(ctx))
		}
	}()
	if n.handle, err = os.Open(filepath.Join(folder, n.name)); err != nil {
		return nil, fmt.Errorf("open the namespace: %w", err)
	}
	return n, n.IP(ctx, "link", "set", "lo", "up")
}

// Close removes the namespace, even if ctx has ended; processes that are still in it keep using it.
func (n *Namespace) Close(ctx context.Context) error {
	var errs []error
	if n.handle != nil {
		errs = append(errs, n.handle.Close())
	}
	return errors.Join(append(errs, IP(context.WithoutCancel(ctx), "netns", "delete", n.name))...)
}

// Name returns the name of the namespace for "ip netns".
func (n *Namespace) Name() string { return n.name }

// Enter returns the command that starts a program within the namespace, to be followed by the
// program's path and arguments. The process keeps its id and its group.
func (n *Namespace) Enter() []string {
	ip, _ := command() // New has found it
	return []string{ip, "netns", "exec", n.name}
}

// IP runs the command ip of iproute2 within the namespace.
func (n *Namespace) IP(ctx context.Context, args ...string) error {
	return IP(ctx, append([]string{"-n", n.name}, args...)...)
}

// Listen listens on an address of the namespace, which must be numeric: no names are resolved
// there.
func (n *Namespace) Listen(ctx context.Context, network, addr string) (l net.Listener, err error) {
	err = n.Do(func() error {
		var config net.ListenConfig
		l, err = config.Listen(ctx, network, addr)
		return err
	})
	return l, err
}

// Dial connects from within the namespace to an address, which must be numeric.
func (n *Namespace) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.Do(func() error {
		var dialer net.Dialer
		c, err = dialer.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// IP runs the command ip of iproute2.
func IP(ctx context.Context, args ...string) error {
	ip, err := command()
	if err != nil {
		return err
	}
	if output, err := exec.CommandContext(ctx, ip, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("run ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}

// command finds the command ip of iproute2, which may be outside a user's PATH.
func command() (string, error) {
	for _, name := range []string{"ip", "/usr/sbin/ip", "/sbin/ip"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find the command ip: %w", exec.ErrNotFound)
}

// owner returns a process as it appears in names: its id, and its start time, because ids are
// reused.
func owner(pid int) (string, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return "", fmt.Errorf("find process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return "", fmt.Errorf("find when process %d started: %w", pid, err)
	}
	return fmt.Sprintf("%d-%d", pid, stat.Starttime), nil
}

// removeStale removes the namespaces of processes that have ended.
func removeStale(ctx context.Context) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find namespaces that were left behind: %w", err)
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), prefix)
		if !ours || lives(rest) {
			continue
		}
		err := IP(ctx, "netns", "delete", e.Name())
		if _, still := os.Stat(filepath.Join(folder, e.Name())); err != nil && still == nil { // otherwise another run was faster
			return err
		}
	}
	return nil
}

// lives reports whether the process named at the beginning of name is alive.
func lives(name string) bool {
	id, _, _ := strings.Cut(name, "-")
	pid, err := strconv.Atoi(id)
	if err != nil {
		return false
	}
	own, err := owner(pid)
	return err == nil && strings.HasPrefix(name, own+"-")
}
