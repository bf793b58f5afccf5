package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/child"
)

const sluice = "Sluice"

// peer is one way to publish the changes of a collection, to project them, or both. Its commands
// find the servers in the variables that the services have, and a file for a resume token in
// TOKEN_FILE.
type peer struct {
	name      string
	publisher []string
	consumer  []string
	settings  []string // beside those that every peer gets
	standbys  int      // how many further instances of the publisher run beside the first
}

// find returns Sluice and the peers that are installed, and why others are not there.
func find(programs, sources string) (found []peer, missing []string) {
	found = []peer{{
		name: sluice, publisher: []string{filepath.Join(programs, "producer")}, consumer: []string{filepath.Join(programs, "projector")}, standbys: 1,
	}}
	for _, other := range []struct {
		language  string
		installed string // what tests/bench/peers/install.sh leaves in the folder
		peers     func(folder, installed string) []peer
	}{
		{"node", "node_modules", func(folder, _ string) []peer {
			return []peer{{
				name:      "Node",
				publisher: []string{"node", filepath.Join(folder, "producer.js")},
				consumer:  []string{"node", filepath.Join(folder, "consumer.js")},
			}}
		}},
		{"python", ".interpreter", func(folder, interpreter string) []peer {
			return []peer{{
				name:      "Python",
				publisher: []string{interpreter, filepath.Join(folder, "producer.py")},
				consumer:  []string{interpreter, filepath.Join(folder, "consumer.py")},
			}}
		}},
		{"java", ".classpath", func(_, classes string) []peer {
			java := func(class string, flags ...string) []string {
				return append(append([]string{"java", "-cp", classes, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}, flags...), class)
			}
			small := []string{"-Xmx256m", "-XX:+UseSerialGC"}
			return []peer{
				{name: "Debezium", publisher: java("Producer"), consumer: java("Consumer")},
				{name: "Debezium-tuned", publisher: java("Producer", small...), consumer: java("Consumer", small...), settings: []string{"TUNED=yes"}},
			}
		}},
	} {
		folder := filepath.Join(sources, other.language)
		if _, err := os.Stat(filepath.Join(folder, other.installed)); err != nil {
			missing = append(missing, other.language+" is left out: install.sh has not installed its clients")
			continue
		}
		text, _ := os.ReadFile(filepath.Join(folder, other.installed)) // a folder has no text
		found = append(found, other.peers(folder, strings.TrimSpace(string(text)))...)
	}
	return found, missing
}

// instance is one running process of a peer, with the processes that it starts.
type instance struct {
	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{}
}

// start runs a command until stop or kill. Both return after the process has been waited for.
func start(command, env []string, folder string) (*instance, error) {
	log, err := os.CreateTemp(folder, filepath.Base(command[0])+"-*.log")
	if err != nil {
		return nil, err
	}
	i := &instance{cmd: exec.Command(command[0], command[1:]...), log: log, ended: make(chan struct{})} //nolint:gosec // a peer's own command
	i.cmd.Env = append(os.Environ(), env...)
	i.cmd.Stdout, i.cmd.Stderr = log, log
	i.cmd.WaitDelay = time.Second
	if err := i.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", command[0], err), log.Close())
	}
	go func() { // ends with the process, which stop and kill wait for
		_ = i.cmd.Wait()
		close(i.ended)
	}()
	return i, nil
}

// kill ends the process and those that it started, without notice.
func (i *instance) kill() {
	for _, pid := range child.Family(i.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // an error means that it has ended
	}
	<-i.ended
	_ = i.log.Close()
}

// stop asks the process to end, and kills it and those that it started after half a minute.
func (i *instance) stop() {
	_ = i.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-i.ended:
		_ = i.log.Close()
	case <-time.After(30 * time.Second):
		i.kill()
	}
}

// tail returns the end of what the process printed.
func (i *instance) tail() string {
	text, _ := os.ReadFile(i.log.Name())
	return string(text[max(len(text)-2000, 0):])
}

// used is what processes have used so far.
type used struct {
	cpu      time.Duration
	resident float64 // MiB
	most     float64 // MiB, the maximum of the samples
}

// gauge samples what instances use, until stop.
type gauge struct {
	instances []*instance
	stop      func()

	mu   sync.Mutex
	most float64 // guarded by mu
}

func watch(ctx context.Context, instances ...*instance) *gauge {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g := &gauge{instances: instances}
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			g.now()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	g.stop = func() { cancel(); sampling.Wait() }
	return g
}

// now returns what the instances, and the processes that they started, use at the moment.
func (g *gauge) now() used {
	var u used
	for _, i := range g.instances {
		processor, resident := child.Use(i.cmd.Process.Pid)
		u.cpu += processor
		u.resident += resident
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = max(g.most, u.resident)
	u.most = g.most
	return u
}
