// Package memory limits what a process may use of it, by a control group of its own, and measures what it did use.
//
// Where control groups cannot be made (no root, no Linux, another controller's) a process can still be measured.
package memory

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrUnavailable is a system on which no control group can be made.
var ErrUnavailable = errors.New("no control group for memory can be made here")

// Group is a control group. Nil is none, which limits nothing.
type Group struct {
	dir string
	in  version
}

// version is what a version of control groups calls things.
type version struct {
	mount, limit, events string
	usable               func() bool
}

var versions = []version{
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control", func() bool { return true }},
	{"/sys/fs/cgroup", "memory.max", "memory.events", func() bool {
		given, err := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control")
		return err == nil && bytes.Contains(given, []byte("memory"))
	}},
}

// Limit makes a group whose processes together have so many bytes; one that needs more is killed. [ErrUnavailable]: nothing was made.
func Limit(name string, limit int64) (*Group, error) {
	for _, v := range versions {
		g := &Group{filepath.Join(v.mount, fmt.Sprintf("%s-%d", name, os.Getpid())), v}
		if _, err := os.Stat(filepath.Join(v.mount, "cgroup.procs")); err != nil || !v.usable() || os.Mkdir(g.dir, 0o700) != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(g.dir, v.limit), strconv.AppendInt(nil, limit, 10), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("limit memory: %w", err), g.Close())
		}
		return g, nil
	}
	return nil, ErrUnavailable
}

// Enter is the command by which a program is started in the group.
func (g *Group) Enter() []string {
	if g == nil {
		return nil
	}
	return []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.dir}
}

// Killed is how many processes were killed because they needed more.
func (g *Group) Killed() (int, error) {
	if g == nil {
		return 0, nil
	}
	text, err := os.ReadFile(filepath.Join(g.dir, g.in.events))
	if err != nil {
		return 0, fmt.Errorf("read what became of a control group: %w", err)
	}
	return int(field(text, "oom_kill")), nil
}

// Close removes the group; its processes must have ended.
func (g *Group) Close() error {
	if g == nil {
		return nil
	}
	return os.Remove(g.dir)
}

// Peak is the most bytes that a process has had in memory; 0 where nobody can say.
func Peak(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return field(text, "VmHWM:") << 10
}

// field is the number behind a name at the start of a line.
func field(text []byte, name string) int64 {
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == name {
			n, _ := strconv.ParseInt(fields[1], 10, 64) // what the kernel writes
			return n
		}
	}
	return 0
}
