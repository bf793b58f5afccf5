package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

const (
	// restartAfter is how long the slot of an ended process stays empty.
	restartAfter = time.Second
	// stopPatience is how long a process may take to stop cleanly; on loopback it takes a fraction
	// of that.
	stopPatience = 10 * time.Second
	// configurationRefused is the services' exit code for settings that cannot work.
	configurationRefused = 2
)

var (
	// ErrRefused means that a service refused its settings: starting it again would not help.
	ErrRefused = errors.New("refused its settings")
	// ErrRepeats means that a service ends with the same error each time.
	ErrRepeats = errors.New("ends with the same error each time")
)

// Slot runs one replica: one process at a time, and a new one when it ends.
type Slot struct {
	Name    string // such as producer-1
	Program string
	LogDir  string
	Env     []string // KEY=VALUE
	// Enter is the command that starts the program, such as "ip netns exec NAME"; empty starts the
	// program directly. Dial connects to the addresses on which the program listens, if that needs
	// more than an address; nil uses a net.Dialer.
	Enter []string
	Dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	// OnEvent is called with each event in the life of the processes, as a text for people.
	OnEvent func(event string)
	// GiveUpAfter makes Run return [ErrRepeats] after so many processes in a row have ended with
	// the same error; 0 never does. StopPatience is how long a process may take to stop cleanly; 0
	// is ten seconds.
	GiveUpAfter  int
	StopPatience time.Duration

	mu       sync.Mutex // guards everything below
	current  *process
	starts   int
	status   Status
	statusAt time.Time // when the current process last answered; zero: it has not
}

// Run keeps the slot filled until ctx ends, then stops the process cleanly and returns nil. An
// error means that the slot cannot be filled.
func (s *Slot) Run(ctx context.Context) error {
	patience := cmp.Or(s.StopPatience, stopPatience)
	last, times := "", 0
	for {
		p, err := s.start()
		if err != nil {
			return err
		}
		var watchers sync.WaitGroup
		watchers.Go(p.wait)
		polling, stopPolling := context.WithCancel(ctx)
		watchers.Go(func() { s.poll(polling, p) })

		select {
		case <-ctx.Done():
			p.stop(patience)
		case <-p.ended:
		}
		stopPolling()
		watchers.Wait()
		s.forget()
		if ctx.Err() != nil {
			return nil
		}
		if exit := p.cmd.ProcessState.ExitCode(); exit == configurationRefused && p.logs.health() == "" {
			return fmt.Errorf("%s %w:\n%s", p.instance, ErrRefused, joinLines(p.logs.worst()))
		}
		why := p.logs.failure()
		if why != "" && why == last {
			times++
		} else {
			last, times = why, 1
		}
		if why != "" && times == s.GiveUpAfter {
			return fmt.Errorf("%s %w: %s", s.Name, ErrRepeats, why)
		}
		event := fmt.Sprintf("%s %s; another one starts in %s", p.instance, p.how(), restartAfter)
		if why != "" && times == 1 {
			event += ": " + why
		}
		s.OnEvent(event)
		if retry.Sleep(ctx, restartAfter) != nil {
			return nil
		}
	}
}

func (s *Slot) start() (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	instance := s.Name
	if s.starts > 0 {
		instance = fmt.Sprintf("%s-r%d", s.Name, s.starts)
	}
	p, err := start(append(slices.Clone(s.Enter), s.Program), instance, s.LogDir, s.Env)
	if err != nil {
		return nil, err
	}
	s.starts++
	s.current, s.status, s.statusAt = p, Status{}, time.Time{}
	return p, nil
}

// forget makes the last answer of an ended process count as old, whatever its age.
func (s *Slot) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statusAt = time.Time{}
}

// Signal sends a signal to the process of the slot. [os.ErrProcessDone] means that no process is
// running.
func (s *Slot) Signal(sig syscall.Signal) (instance string, err error) {
	p := s.process()
	if p == nil {
		return "", os.ErrProcessDone
	}
	if err := p.signal(sig); err != nil {
		return p.instance, fmt.Errorf("signal %s: %w", p.instance, err)
	}
	if sig == syscall.SIGKILL {
		s.forget() // it is about to end, so its last status no longer counts
	}
	return p.instance, nil
}

// Crash kills the process that does the work and not its parent, as a panic or a lack of memory
// does. A process without a child is killed itself. [os.ErrProcessDone] means that no process is
// running.
func (s *Slot) Crash() (instance string, err error) {
	p, pid, ok := s.running()
	if !ok {
		return "", os.ErrProcessDone
	}
	family := Family(pid)
	if err := syscall.Kill(family[len(family)-1], syscall.SIGKILL); err != nil {
		return p.instance, fmt.Errorf("kill the process of %s: %w", p.instance, err)
	}
	s.forget()
	return p.instance, nil
}

// Worst returns the last warnings and errors of the process, or its last lines if it never served.
func (s *Slot) Worst() []string {
	if p := s.process(); p != nil {
		return p.logs.worst()
	}
	return nil
}

// PID returns the id of the process; ok is false if no process is running.
func (s *Slot) PID() (pid int, ok bool) {
	_, pid, ok = s.running()
	return pid, ok
}

func (s *Slot) running() (p *process, pid int, ok bool) {
	if p = s.process(); p == nil {
		return nil, 0, false
	}
	select {
	case <-p.ended:
		return nil, 0, false
	default:
		return p, p.cmd.Process.Pid, true
	}
}

func (s *Slot) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}
