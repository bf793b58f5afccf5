// Package azurite runs Azurite, Microsoft's emulator of Blob storage, as a child process. Our own
// emulator and the services are tested against it as a second implementation.
// tests/emulator/scripts/azurite.sh installs it with npm from the lock file in
// tests/emulator/azurite; nothing else depends on it.
//
// Guaranteed: Azurite has a port of its own and keeps its data in memory only, and no process is
// left behind. Stop kills the whole process group; on Linux the kernel kills it if this process
// dies for any reason. On other systems a killed parent may leave Azurite behind.
package azurite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"time"
)

// ErrNotInstalled is returned when node or the installed package is missing.
var ErrNotInstalled = errors.New("azurite is not installed: run tests/emulator/scripts/azurite.sh (needs npm)")

// account and key are those that every Azure storage emulator uses.
const (
	account = "devstoreaccount1"
	key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// startTimeout bounds the wait for Azurite to answer. A cold start reads some
// thousand files.
const startTimeout = 60 * time.Second

// tailSize is how many bytes at the end of the output are kept for the error of a failed start.
const tailSize = 4 << 10

// Options of a start. The zero value starts the Azurite of this checkout.
type Options struct {
	// Dir holds node_modules; empty means tests/emulator/azurite of this checkout, found
	// from the working directory upwards.
	Dir string
	// Output receives what Azurite prints. If it is nil, only the end of the output is kept, for
	// errors.
	Output io.Writer
}

// Process is a running Azurite.
type Process struct {
	addr string
	kill context.CancelFunc
	done chan struct{} // closed when the process has been waited for
	err  error         // written before done is closed
	stop func() error  // runs end once
}

// Start starts Azurite and returns when it answers. The context bounds the start only; Stop ends
// the process. The error matches ErrNotInstalled if Azurite is not installed.
func Start(ctx context.Context, opts Options) (*Process, error) {
	node, script, err := find(opts.Dir)
	if err != nil {
		return nil, err
	}
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	out := &output{next: opts.Output, listening: make(chan string, 1)}
	p := &Process{kill: kill, done: make(chan struct{})}
	p.stop = sync.OnceValue(p.end)
	// The program is fixed: node, with the script of the pinned package.
	cmd := exec.CommandContext(life, node, script, "--silent", "--inMemoryPersistence", "--disableTelemetry",
		"--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", "0")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = os.TempDir(), out, out, time.Second
	isolate(cmd)
	var owner sync.WaitGroup // its one goroutine closes done at its end
	owner.Go(func() {
		// The kernel ties the death signal to the thread that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		p.err = cmd.Run()
	})
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.ready(ctx, out); err != nil {
		_ = p.Stop() // the reason is in err
		return nil, fmt.Errorf("start azurite: %w\n%s", err, out.tail())
	}
	return p, nil
}

// ready waits for the line with the port, then for an HTTP answer.
func (p *Process) ready(ctx context.Context, out *output) error {
	select {
	case p.addr = <-out.listening:
	case <-p.done:
		return fmt.Errorf("it ended: %w", p.err)
	case <-ctx.Done():
		return ctx.Err()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/"+account+"?comp=list", http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true // leaves no idle connection behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close() // any answer will do: an unsigned request gets a 403
}

// Run starts Azurite, calls ready with its connection string, and returns nil when ctx is done, or
// an error if the process ends before that. The process has ended when Run returns.
func Run(ctx context.Context, opts Options, ready func(connectionString string)) error {
	p, err := Start(ctx, opts)
	if err != nil {
		return err
	}
	ready(p.ConnectionString())
	select {
	case <-ctx.Done():
		return p.Stop()
	case <-p.done:
		return fmt.Errorf("azurite ended unexpectedly: %w", p.err)
	}
}

// Addr returns the host and port on which Azurite listens.
func (p *Process) Addr() string { return p.addr }

// ConnectionString returns the connection string of the storage account.
func (p *Process) ConnectionString() string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=http://%s/%s;", account, key, p.addr, account)
}

// Done returns a channel that is closed when the process has ended, for any reason.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop kills the process group and returns when it has ended. It may be called more than once;
// every call returns the first one's error, which is not nil if the process had ended before.
func (p *Process) Stop() error { return p.stop() }

func (p *Process) end() error {
	select {
	case <-p.done:
		return p.err // it ended before: return the reason
	default:
	}
	p.kill()
	<-p.done
	if _, killed := errors.AsType[*exec.ExitError](p.err); killed || errors.Is(p.err, context.Canceled) {
		return nil
	}
	return p.err
}

// find returns the paths of the node program and of Azurite's script.
func find(dir string) (node, script string, err error) {
	if dir == "" {
		if dir, err = checkout(); err != nil {
			return "", "", err
		}
	}
	script = filepath.Join(dir, "node_modules", "azurite", "dist", "src", "blob", "main.js")
	if _, err := os.Stat(script); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	if node, err = exec.LookPath("node"); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	return node, script, nil
}

// checkout finds tests/emulator/azurite from the working directory upwards: tests run in
// their package's directory, the command in the checkout's.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find azurite: %w", err)
	}
	for {
		candidate := filepath.Join(dir, "tests", "emulator", "azurite")
		if _, err := os.Stat(filepath.Join(candidate, "package.json")); err == nil {
			return candidate, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("%w: no tests/emulator/azurite above the working directory", ErrNotInstalled)
		}
		dir = parent
	}
}

var listens = regexp.MustCompile(`successfully listens on http://(\S+)`)

// output passes on what the process prints, keeps the end of it, and sends the address, which one
// line contains. Stdout and stderr are one writer, so os/exec never calls it concurrently; the lock
// is for tail.
type output struct {
	next      io.Writer
	listening chan string

	mu       sync.Mutex
	last     []byte // guarded by mu
	reported bool   // guarded by mu
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, b...)
	if found := listens.FindSubmatch(o.last); found != nil && !o.reported && bytes.Contains(o.last, append(found[0], '\n')) {
		o.reported = true
		o.listening <- string(found[1])
	}
	if len(o.last) > tailSize {
		o.last = append([]byte(nil), o.last[len(o.last)-tailSize:]...)
	}
	if o.next != nil {
		if _, err := o.next.Write(b); err != nil {
			return 0, fmt.Errorf("pass on azurite output: %w", err)
		}
	}
	return len(b), nil
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.last)
}
