package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// process is one running service.
type process struct {
	instance string
	cmd      *exec.Cmd
	logs     *logs
	ended    chan struct{} // closed when it has been waited for
	waitErr  error         // read after ended is closed
}

// start starts a program in a process group of its own, so that a signal to our group (Ctrl-C) does
// not reach it. This process stops it with a signal instead.
func start(command []string, instance, logDir string, env []string) (*process, error) {
	l, err := newLogs(filepath.Join(logDir, instance+".log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(clean(os.Environ()), env...)
	cmd.Env = append(cmd.Env, "CONTAINER_APP_REPLICA_NAME="+instance)
	cmd.Stdout, cmd.Stderr = l, l
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = time.Second // in case the process leaves a child behind that holds its output
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", instance, err), l.file.Close())
	}
	return &process{instance: instance, cmd: cmd, logs: l, ended: make(chan struct{})}, nil
}

// wait reaps the process; it is called once.
func (p *process) wait() {
	p.waitErr = p.cmd.Wait()
	_ = p.logs.file.Close() // the log of an ended process; nothing depends on it
	close(p.ended)
}

// signal sends a signal to the whole group.
func (p *process) signal(s syscall.Signal) error {
	select {
	case <-p.ended:
		return os.ErrProcessDone
	default:
	}
	err := syscall.Kill(-p.cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone // it has ended and has not been waited for yet
	}
	return err
}

// stop sends SIGTERM, after a while SIGKILL, and returns when the process has ended.
func (p *process) stop(patience time.Duration) {
	_ = p.signal(syscall.SIGTERM) // an error means that it has ended
	_ = p.signal(syscall.SIGCONT) // a frozen process receives no other signal
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.signal(syscall.SIGKILL)
		<-p.ended
	}
}

// how describes in words how the process ended.
func (p *process) how() string {
	exit, ok := errors.AsType[*exec.ExitError](p.waitErr)
	switch {
	case p.waitErr == nil:
		return "stopped cleanly"
	case !ok:
		return p.waitErr.Error()
	}
	if status, isWait := exit.Sys().(syscall.WaitStatus); isWait && status.Signaled() {
		return "was " + status.Signal().String()
	}
	return fmt.Sprintf("ended with exit code %d", exit.ExitCode())
}

// clean removes the services' settings from the caller's environment.
func clean(env []string) []string {
	kept := []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "GODEBUG", "GORACE", "SSL_CERT_FILE", "SSL_CERT_DIR"}
	return slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(kept, name)
	})
}
